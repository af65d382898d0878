# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays of all kinds are described as they are, and others refused with a reason."""

import array
import ctypes
import mmap
import unittest

import numpy

import onebit
from onebit._buffers import buffer_of, data_type
from rank_threads_case import run_ranks


class Bfloat16Type:
    """The type of an array of ml_dtypes, which NumPy alone does not have."""

    name = "bfloat16"


class Bfloat16Array:
    """As ml_dtypes has it: NumPy describes the elements as two bytes without a meaning."""

    dtype = Bfloat16Type()

    def __init__(self, count: int):
        self.memory = numpy.zeros(count, "V2")

    @property
    def __array_interface__(self) -> dict:
        return self.memory.__array_interface__


class Tensor:
    """The methods of a tensor of PyTorch that are used, over memory of NumPy."""

    def __init__(self, memory: numpy.ndarray, dtype: str):
        self.memory, self.dtype, self.shape = memory, dtype, memory.shape

    def data_ptr(self) -> int:
        return self.memory.ctypes.data

    def element_size(self) -> int:
        return self.memory.itemsize

    def numel(self) -> int:
        return self.memory.size

    def is_contiguous(self) -> bool:
        return self.memory.flags.c_contiguous


class OnlyDlpack:
    """An array that offers DLPack and nothing else."""

    def __init__(self, memory: numpy.ndarray):
        self.memory = memory

    def __dlpack__(self) -> object:
        return self.memory.__dlpack__()


class CudaArray:
    """An array whose memory is said to be on a device. Nothing reads it here."""

    def __init__(self, typestr: str = "<f4", **more: object):
        self.__cuda_array_interface__ = {
            "shape": (2, 3),
            "typestr": typestr,
            "data": (4096, False),
            "version": 3,
            **more,
        }


class BuffersTest(unittest.TestCase):
    def test_numpy_arrays_of_every_type(self):
        for name in ("uint8", "int32", "int64", "float16", "float32", "float64"):
            memory = numpy.zeros((3, 5), name)
            buffer = buffer_of(memory, "array")
            self.assertEqual(
                (buffer.address, buffer.count, str(buffer.dtype), buffer.is_writable),
                (memory.ctypes.data, 15, name, True),
            )
        self.assertIs(buffer_of(memory, "array").owner, memory)

    def test_arrays_of_the_buffer_protocol(self):
        for memory, count, name in (
            (bytearray(7), 7, "uint8"),
            (array.array("f", [1, 2]), 2, "float32"),
            (array.array("d", [1]), 1, "float64"),
            (array.array("q", [1]), 1, "int64"),
            (array.array("i", [1]), 1, "int32"),
            ((ctypes.c_float * 3)(), 3, "float32"),
            (mmap.mmap(-1, 4096), 4096, "uint8"),
            (memoryview(bytearray(3)), 3, "uint8"),
        ):
            buffer = buffer_of(memory, "array")
            self.assertEqual(
                (buffer.count, str(buffer.dtype), buffer.is_writable), (count, name, True)
            )
            self.assertNotEqual(buffer.address, 0)
        floats = array.array("f", [1, 2])
        self.assertEqual(buffer_of(floats, "array").address, floats.buffer_info()[0])

    def test_a_buffer_pins_what_could_move(self):
        memory = bytearray(7)
        buffer = buffer_of(memory, "array")
        with self.assertRaises(BufferError):
            memory.extend(b"more")
        del buffer
        memory.extend(b"more")

    def test_read_only_arrays_can_be_sent_only(self):
        constant = numpy.arange(6, dtype="f4")
        constant.flags.writeable = False
        for memory in (b"abc", constant, memoryview(b"abc")):
            buffer = buffer_of(memory, "all_reduce: array")
            self.assertFalse(buffer.is_writable)
            with self.assertRaisesRegex(
                onebit.InvalidArgument, "all_reduce: array is read-only.*as `out`"
            ):
                buffer.written()

    def test_bfloat16(self):
        memory = Bfloat16Array(4)
        buffer = buffer_of(memory, "array")
        self.assertEqual(
            (buffer.address, buffer.count, buffer.dtype),
            (memory.memory.ctypes.data, 4, onebit.DataType.BFLOAT16),
        )
        tensor = Tensor(numpy.zeros(4, "u2"), "torch.bfloat16")
        self.assertEqual(buffer_of(tensor, "array").dtype, onebit.DataType.BFLOAT16)

    def test_tensors(self):
        memory = numpy.zeros((2, 3), "f4")
        buffer = buffer_of(Tensor(memory, "torch.float32"), "array")
        self.assertEqual(
            (buffer.address, buffer.count, str(buffer.dtype)), (memory.ctypes.data, 6, "float32")
        )
        with self.assertRaisesRegex(
            onebit.InvalidArgument, r"shape \(3, 2\), is not contiguous.*Tensor.contiguous"
        ):
            buffer_of(Tensor(memory.T, "torch.float32"), "array")
        with self.assertRaisesRegex(TypeError, "elements of type torch.complex64"):
            buffer_of(Tensor(memory, "torch.complex64"), "array")

    def test_dlpack(self):
        memory = numpy.arange(6, dtype="f8").reshape(2, 3)
        buffer = buffer_of(OnlyDlpack(memory), "array")
        self.assertEqual(
            (buffer.address, buffer.count, str(buffer.dtype)), (memory.ctypes.data, 6, "float64")
        )
        with self.assertRaisesRegex(onebit.InvalidArgument, "not contiguous"):
            buffer_of(OnlyDlpack(memory.T), "array")
        with self.assertRaisesRegex(TypeError, "int16, which onebit does not know"):
            buffer_of(OnlyDlpack(numpy.zeros(2, "i2")), "array")

    def test_cuda_arrays(self):
        buffer = buffer_of(CudaArray(), "array")
        self.assertEqual((buffer.address, buffer.count, str(buffer.dtype)), (4096, 6, "float32"))
        with self.assertRaisesRegex(onebit.InvalidArgument, "not contiguous"):
            buffer_of(CudaArray(strides=(4, 8)), "array")
        with self.assertRaisesRegex(TypeError, "elements of type <c8"):
            buffer_of(CudaArray("<c8"), "array")

    def test_what_lies_in_a_row(self):
        memory = numpy.zeros((4, 1, 6), "f4")
        for contiguous in (
            memory,
            memory[1:3],
            memory[:1, :, :],
            memory[2, 0, 1:4],
            memory[:0],
            memory.T[..., :0],
        ):
            buffer_of(contiguous, "array")
        for other in (
            memory[::2],
            memory.T,
            memory[:, :, ::2],
            memory[::-1],
            numpy.broadcast_to(memory[:1], memory.shape),
            memoryview(bytearray(8))[::2],
        ):
            with self.assertRaisesRegex(
                onebit.InvalidArgument, "array, of shape .*, is not contiguous"
            ):
                buffer_of(other, "array")

    def test_other_elements_are_refused_by_name(self):
        for memory, text in (
            (numpy.zeros(3, "i2"), "int16"),
            (numpy.zeros(3, ">f4"), ">f4"),
            (numpy.zeros(3, "c8"), "complex64"),
            (numpy.zeros(3, "?"), "bool"),
            (array.array("h", [1]), "'h'"),
            (numpy.array(["a"], object), "object"),
        ):
            with self.assertRaisesRegex(
                TypeError, f"array has elements of type {text}.*convert.*float32"
            ):
                buffer_of(memory, "array")

    def test_other_objects_are_refused(self):
        for thing in (3.5, [1.0, 2.0], "text", None):
            with self.assertRaisesRegex(TypeError, "array is of type .*: pass an array, such as"):
                buffer_of(thing, "array")

    def test_names_of_types(self):
        for name in (
            "float32",
            numpy.float32,
            numpy.dtype("f4"),
            onebit.DataType.FLOAT32,
            "torch.float32",
        ):
            self.assertEqual(data_type(name), onebit.DataType.FLOAT32)
        with self.assertRaisesRegex(TypeError, "'float31' is not an element type of onebit: use one of uint8, int32"):
            data_type("float31")

    def test_sizes_and_types_of_pairs(self):
        def check(comm: onebit.Communicator) -> None:
            six, four = numpy.zeros(6, "f4"), numpy.zeros(4, "f4")
            with self.assertRaisesRegex(
                onebit.InvalidArgument, "all_reduce: out has 4 elements, but needs 6"
            ):
                comm.all_reduce(six, out=four)
            with self.assertRaisesRegex(
                onebit.InvalidArgument, "array has elements of float64|out has elements of float64"
            ):
                comm.all_reduce(six, out=numpy.zeros(6))
            with self.assertRaisesRegex(
                onebit.InvalidArgument, "7 elements, which is not a multiple of the 2 parts"
            ):
                comm.reduce_scatter(numpy.zeros(7, "f4"))
            with self.assertRaisesRegex(
                onebit.InvalidArgument, "all_gather: out has 6 elements, but needs 8.*2 ranks"
            ):
                comm.all_gather(four, out=six)
            with self.assertRaisesRegex(onebit.InvalidArgument, "all_to_all: out is missing"):
                comm.all_to_all(six, None)
            with self.assertRaisesRegex(onebit.InvalidArgument, "counts and offsets reach to 7"):
                comm.all_to_all_v(six, [3, 4], numpy.zeros(9, "f4"), [3, 4])
            with self.assertRaisesRegex(
                onebit.InvalidArgument, r"counts \[3\], but they must be 2 numbers"
            ):
                comm.all_to_all_v(six, [3], numpy.zeros(9, "f4"), [3, 4])
            with self.assertRaisesRegex(onebit.InvalidArgument, "recv: array is read-only"):
                comm.recv(b"abc", 1 - comm.rank)
            with self.assertRaisesRegex(
                onebit.InvalidArgument, "mask has 1 elements, but needs 2: a bit for each of 12"
            ):
                onebit.Compressor(comm, 12, mask=b"\xff")
            with self.assertRaisesRegex(
                ValueError, "'mean' is not a RedOp: use one of sum, max, min, avg"
            ):
                comm.all_reduce(six, op="mean")
            with self.assertRaisesRegex(TypeError, "stream is of type str: pass a onebit.Stream"):
                comm.all_reduce(six, stream="0")
            comm.all_reduce(six)  # none of these has sent anything
            if comm.rank == 1:
                with self.assertRaisesRegex(
                    onebit.InvalidArgument, "broadcast: array is read-only"
                ):
                    comm.broadcast(b"abc")
            received = bytearray(3)
            comm.broadcast(b"abc" if comm.rank == 0 else received)
            self.assertEqual(bytes(received), b"\0\0\0" if comm.rank == 0 else b"abc")

        run_ranks(2, check)


if __name__ == "__main__":
    unittest.main()
