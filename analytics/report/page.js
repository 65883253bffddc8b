(function () {
  "use strict";
  var figures = JSON.parse(document.getElementById("chart_data").textContent);
  var charts = Array.prototype.slice.call(document.querySelectorAll(".chart"));
  var config = {
    responsive: true, displaylogo: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]
  };
  // The width of an A4 sheet, and dark on white: when printing starts, the page still has the width
  // and the colours of the screen.
  var paper = { width: 700, ink: "#000", soft: "#444", grid: "#e5e5e5", line: "#ccc", card: "#fff" };
  var printing = false;
  var busy = false;

  function style() {
    if (printing) { return paper; }
    var css = getComputedStyle(document.documentElement);
    function get(name) { return css.getPropertyValue(name).trim(); }
    return { ink: get("--ink"), soft: get("--soft"), grid: get("--grid"), line: get("--line"), card: get("--card") };
  }

  function styled(figure, width) {
    var s = style();
    var layout = JSON.parse(JSON.stringify(figure.layout));
    var narrow = width < 520;
    if (printing) { layout.width = paper.width; }
    layout.paper_bgcolor = "rgba(0,0,0,0)";
    layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { color: s.soft, size: narrow ? 11 : 12, family: getComputedStyle(document.body).fontFamily };
    layout.hoverlabel = { bgcolor: s.card, bordercolor: s.line, font: { color: s.ink, size: 12 }, namelength: -1 };
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: s.soft, activecolor: s.ink };
    Object.keys(layout).forEach(function (key) {
      if (/^[xy]axis/.test(key)) {
        layout[key].gridcolor = s.grid;
        layout[key].zerolinecolor = s.grid;
        layout[key].linecolor = s.line;
      }
    });
    var data = JSON.parse(JSON.stringify(figure.data));
    if (narrow) {
      layout.margin.r = 6;
      // More height, so that a legend of several rows does not shrink the chart.
      var named = data.filter(function (trace) { return layout.showlegend && trace.showlegend !== false; });
      layout.height += 20 * Math.floor(named.length / 2);
      data.forEach(function (trace) { if (trace.line) { trace.line.width *= 0.8; } });
    }
    return { data: data, layout: layout };
  }

  function draw(div) {
    var width = printing ? paper.width : div.clientWidth;
    var made = styled(figures[div.id][+div.dataset.view || 0], width);
    var axis = div.layout && div.layout.xaxis;
    if (div.dataset.time && axis && axis.range && axis.autorange === false && div.dataset.zoomed) {
      made.layout.xaxis.range = axis.range.slice();
    }
    div.style.height = made.layout.height + "px";
    return Plotly.react(div, made.data, made.layout, config);
  }

  function linkZoom(source) {
    source.on("plotly_relayout", function (change) {
      var from = change["xaxis.range[0]"], to = change["xaxis.range[1]"];
      if (change["xaxis.range"]) { from = change["xaxis.range"][0]; to = change["xaxis.range"][1]; }
      var whole = change["xaxis.autorange"] || change["autosize"] === undefined && change["xaxis.showspikes"] !== undefined;
      if (busy || (from === undefined && !whole)) { return; }
      busy = true;
      Promise.all(charts.map(function (div) {
        if (!div.dataset.time) { return null; }
        div.dataset.zoomed = from === undefined ? "" : "yes";
        if (div === source) { return null; }
        var range = from === undefined ? figures[div.id][+div.dataset.view || 0].layout.xaxis.range.slice() : [from, to];
        return Plotly.relayout(div, { "xaxis.range": range });
      })).then(function () { busy = false; }, function () { busy = false; });
    });
  }

  charts.forEach(function (div) {
    draw(div).then(function () { if (div.dataset.time) { linkZoom(div); } });
  });
  Array.prototype.forEach.call(document.querySelectorAll(".views button"), function (button) {
    button.addEventListener("click", function () {
      Array.prototype.forEach.call(document.querySelectorAll('[data-of="' + button.dataset.of + '"]'), function (each) {
        each.setAttribute("aria-pressed", each === button ? "true" : "false");
      });
      var div = document.getElementById(button.dataset.of);
      div.dataset.view = button.dataset.view;
      draw(div);
    });
  });
  function redraw() { charts.forEach(draw); }
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", function () { printing = true; redraw(); });
  window.addEventListener("afterprint", function () {
    printing = false;
    charts.forEach(function (div) { draw(div).then(function () { Plotly.Plots.resize(div); }); });
  });
}());
