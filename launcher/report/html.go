package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"sync"
)

//go:embed page.tmpl
var pageText string

//go:embed page.css
var pageStyle string

var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"clean": clean, "lines": block, "moment": moment, "colour": colour,
	}).Parse(pageText))
})

// page is the data for the HTML template.
type page struct {
	Title    string
	Style    template.CSS
	Runs     []shown
	Differ   *differences // comparison of the runs; nil if the page shows only one run
	Training []figure
	Hosts    []figure
}

// shown is a run with the further values that the HTML template shows.
type shown struct {
	Run
	Label     string
	Colour    string
	Good      string // CSS class for the colour of the job's state: good, bad, busy or odd
	Duration  string
	FewEvents bool // true if the list of events is expanded when the page opens
	Shown     bool // true if the run's section is expanded when the page opens
}

// Maximum numbers of events and of runs that are expanded when the page opens.
const (
	maxOpen = 20
	maxRuns = 3
)

// HTML writes a page on the runs to w. The page needs no other file and
// contains no script.
func HTML(w io.Writer, runs []Run) error {
	p := page{Title: title(runs), Style: template.CSS(pageStyle)} //nolint:gosec // it is a file of this package
	labels := labels(runs)
	for i, run := range runs {
		p.Runs = append(p.Runs, shown{Run: run, Label: labels[i], Colour: colour(i), Good: badge(run.State), Duration: run.duration(),
			FewEvents: len(run.Events) <= maxOpen, Shown: len(runs) <= maxRuns})
	}
	if len(runs) > 1 {
		p.Differ = differ(runs)
	}
	all, err := figures(runs)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, f := range all {
		if f.Host {
			p.Hosts = append(p.Hosts, f)
		} else {
			p.Training = append(p.Training, f)
		}
	}
	return pageTemplate().Execute(w, p)
}

// title returns the title of a report.
func title(runs []Run) string {
	switch len(runs) {
	case 0:
		return "No runs"
	case 1:
		return labels(runs)[0]
	}
	return fmt.Sprintf("%d runs", len(runs))
}

// badge returns the CSS class for a job's state.
func badge(state string) string {
	switch state {
	case "done":
		return "good"
	case "failed", "hung", "lost":
		return "bad"
	case "running", "starting", "pending":
		return "busy"
	}
	return "odd"
}

// differences is the content of the table that compares several runs.
type differences struct {
	Labels []string
	Rows   []compared // facts that differ, and the state, duration and last metrics of each run
	Equal  []Fact
}

// Wide reports whether there are so many runs that the table shows a line for
// each run instead of a column.
func (d *differences) Wide() bool { return len(d.Labels) > maxRuns }

// compared is a row of the table that compares runs: one property with its
// value in each run.
type compared struct {
	Name   string
	Values []string
}

// differ compares the runs: their facts, states, durations and last training
// metrics.
func differ(runs []Run) *differences {
	d := &differences{Labels: labels(runs)}
	var names []string
	values := map[string][]string{}
	for i, run := range runs {
		for _, fact := range append([]Fact{{"command", run.Command}}, run.Facts...) {
			if values[fact.Name] == nil {
				names = append(names, fact.Name)
				values[fact.Name] = make([]string, len(runs))
			}
			values[fact.Name][i] = fact.Value
		}
	}
	for _, name := range names {
		if of := values[name]; slices.ContainsFunc(of, func(v string) bool { return v != of[0] }) {
			d.Rows = append(d.Rows, compared{name, of})
		} else {
			d.Equal = append(d.Equal, Fact{name, of[0]})
		}
	}
	state, took := compared{Name: "state"}, compared{Name: "duration"}
	for _, run := range runs {
		state.Values, took.Values = append(state.Values, run.State), append(took.Values, run.duration())
	}
	d.Rows = append(d.Rows, state, took)
	for _, m := range metricsOf(runs) {
		if m.host || m.order() > 3 {
			break
		}
		last := compared{"last " + m.name, make([]string, len(runs))}
		for _, s := range slices.Backward(m.sources) { // Walk backward, so that the value of the first worker overwrites those of later workers.
			last.Values[s.run] = number(float64(s.Points[len(s.Points)-1].Last))
		}
		d.Rows = append(d.Rows, last)
	}
	return d
}
