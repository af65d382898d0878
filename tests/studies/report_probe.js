// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// This script finds in a report, as the browser laid it out, what a reader would see wrong:
// report_browser_test.py puts it into a copy of the page and reads the element "probe" that it leaves.
// Distances are in CSS pixels.
"use strict";

const TOLERANCE = 0.5;  // what rounding may do to an edge

function boxes(elements) {
  return Array.from(elements, (element) => ({text: element.textContent, box: element.getBoundingClientRect()}))
      .filter(({box}) => box.width > 0);
}

function reachesOut(inner, outer) {
  return inner.left < outer.left - TOLERANCE || inner.right > outer.right + TOLERANCE ||
      inner.top < outer.top - TOLERANCE || inner.bottom > outer.bottom + TOLERANCE;
}

function overlap(one, other) {
  return one.left < other.right - TOLERANCE && other.left < one.right - TOLERANCE &&
      one.top < other.bottom - TOLERANCE && other.top < one.bottom - TOLERANCE;
}

function chartProblems(chart) {
  const name = chart.querySelector("title").textContent;
  const outer = chart.getBoundingClientRect();
  const texts = boxes(chart.querySelectorAll("text"));
  const found = [];
  texts.forEach(({text, box}, index) => {
    if (reachesOut(box, outer)) found.push(`${name}: '${text}' reaches out of the chart`);
    for (const other of texts.slice(index + 1)) {
      if (overlap(box, other.box)) found.push(`${name}: '${text}' overlaps '${other.text}'`);
    }
  });
  return found;
}

function probe() {
  document.querySelectorAll("details").forEach((details) => { details.open = true; });
  const charts = Array.from(document.querySelectorAll("svg.chart"));
  const problems = charts.flatMap(chartProblems);
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    problems.push(`the page is ${root.scrollWidth} wide in a window of ${root.clientWidth}`);
  }
  const shown = charts.filter((chart) => chart.getBoundingClientRect().width > 200).length;
  const texts = document.querySelectorAll("svg.chart text").length;
  const result = document.createElement("pre");
  result.id = "probe";
  result.textContent = JSON.stringify({shown, texts, width: root.clientWidth, height: root.scrollHeight, problems});
  document.body.append(result);
}

probe();
