/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 * One rank of an MPI job on the lab: lab_mpi_program COUNT [abort|wait FILE]. Sums COUNT numbers
 * over the ranks and says where it ran; then rank 1 aborts the job, or makes FILE, and all wait. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  const int count = atoi(argv[1]);
  float* numbers = malloc((size_t)count * sizeof(float));
  for (int i = 0; i < count; ++i) numbers[i] = (float)(rank + 1);
  MPI_Allreduce(MPI_IN_PLACE, numbers, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);

  char host[64] = "";
  gethostname(host, sizeof(host) - 1);
  printf("rank %d of %d on %s has %g\n", rank, ranks, host, numbers[count - 1]);
  fflush(stdout);
  free(numbers);

  if (argc > 2 && strcmp(argv[2], "abort") == 0 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
  if (argc > 2) {
    if (argc > 3 && rank == 1) fclose(fopen(argv[3], "w"));
    sleep(60); /* until it is ended */
  }
  MPI_Barrier(MPI_COMM_WORLD);
#ifdef MPICH_VERSION
  _exit(0); /* over UCX's TCP, MPI_Finalize may wait for a rank that has left it already */
#endif
  MPI_Finalize();
  return 0;
}
