package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/plx-run/plx/launcher/metrics"
)

// Types of a JSON report, which is one object:
//
//	{"v":1,"runs":[{"job":"…","name":"…","command":"…","created":"…","ended":"…","as_of":"…","state":"…","code":0,
//	  "verdict":"…","details":["…"],"facts":[{"name":"…","value":"…"}],"plan":["…"],
//	  "events":[{"time":"…","kind":"…","host":"…","task":"…","text":"…"}],
//	  "series":[{"name":"loss","host":"…","task":"…","points":[{"step":1,"time":"…","last":0.5,"min":0.4,"max":0.6}]}],
//	  "tails":[{"task":"…","host":"…","lines":["…"]}],"missing":["…"]}]}
//
// Times have the format of RFC 3339. Unknown values are omitted, but a point
// without a step has step -1. NaN and infinite numbers are the strings "NaN",
// "+Inf" and "-Inf". v is the version of the format, which changes if the
// meaning of a name changes.
type (
	jsonReport struct {
		V    int       `json:"v"`
		Runs []jsonRun `json:"runs"`
	}
	jsonRun struct {
		Job     string       `json:"job"`
		Name    string       `json:"name,omitempty"`
		Command string       `json:"command,omitempty"`
		Created time.Time    `json:"created,omitzero"`
		Ended   time.Time    `json:"ended,omitzero"`
		AsOf    time.Time    `json:"as_of,omitzero"`
		State   string       `json:"state"`
		Code    *int         `json:"code,omitempty"`
		Verdict string       `json:"verdict,omitempty"`
		Details []string     `json:"details,omitempty"`
		Facts   []jsonFact   `json:"facts,omitempty"`
		Plan    []string     `json:"plan,omitempty"`
		Events  []jsonEvent  `json:"events,omitempty"`
		Series  []jsonSeries `json:"series,omitempty"`
		Tails   []jsonTail   `json:"tails,omitempty"`
		Missing []string     `json:"missing,omitempty"`
	}
	jsonFact struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	jsonEvent struct {
		Time time.Time `json:"time"`
		Kind string    `json:"kind"`
		Host string    `json:"host,omitempty"`
		Task string    `json:"task,omitempty"`
		Text string    `json:"text"`
	}
	jsonSeries struct {
		Name   string      `json:"name"`
		Host   string      `json:"host,omitempty"`
		Task   string      `json:"task,omitempty"`
		Points []jsonPoint `json:"points"`
	}
	jsonPoint struct {
		Step int64          `json:"step"`
		Time time.Time      `json:"time"`
		Last metrics.Number `json:"last"`
		Min  metrics.Number `json:"min"`
		Max  metrics.Number `json:"max"`
	}
	jsonTail struct {
		Task  string   `json:"task,omitempty"`
		Host  string   `json:"host,omitempty"`
		Lines []string `json:"lines"`
	}
)

// JSON writes the runs with all points of their series to w, as one JSON
// object.
func JSON(w io.Writer, runs []Run) error {
	out := jsonReport{V: 1, Runs: make([]jsonRun, 0, len(runs))}
	for _, r := range runs {
		one := jsonRun{Job: r.Job, Name: r.Name, Command: r.Command, Created: r.Created, Ended: r.Ended, AsOf: r.AsOf, State: r.State,
			Code: r.Code, Verdict: r.Verdict, Details: r.Details, Plan: r.Plan, Missing: r.Missing}
		for _, f := range r.Facts {
			one.Facts = append(one.Facts, jsonFact(f))
		}
		for _, e := range r.Events {
			one.Events = append(one.Events, jsonEvent(e))
		}
		for _, s := range r.Series {
			points := make([]jsonPoint, len(s.Points))
			for i, p := range s.Points {
				points[i] = jsonPoint(p)
			}
			one.Series = append(one.Series, jsonSeries{s.Name, s.Host, s.Task, points})
		}
		for _, t := range r.Tails {
			one.Tails = append(one.Tails, jsonTail{t.Task, t.Host, append([]string{}, t.Lines...)})
		}
		out.Runs = append(out.Runs, one)
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
