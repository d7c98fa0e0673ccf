package main

import (
	"math"
	"testing"
)

var small = modelSettings{Vocabulary: 1000, Width: 10, Hidden: 10, Length: 5, Batch: 2, Samples: 20}

func TestDemands(t *testing.T) {
	rows := Rows{Words: 8, Classes: 30}
	// A matrix of the LSTM has 10x40 elements, its bias 40: 3360 bytes are
	// dense; the tables have 84,000.
	const words, classes, dense = 8 * 40, 30 * 44, 3360
	for _, c := range []struct {
		name string
		f    formula
		n    float64
		at   homes
		want demand
	}{
		{"all-reduce", allReduce, 4, nil, demand{direction: 1.5 * 87360}},
		{"all-gather", allGather, 4, nil, demand{direction: 3*(words+classes+8*38) + 1.5*dense}},
		{"hybrid", hybrid, 4, nil, demand{direction: 1.5 * (words + classes + dense)}},
		{"hybrid alone", hybrid, 1, nil, demand{}},
		{"servers alone", plainServers, 1, nil, demand{}},
		{"a variable on each server", plainServers, 3, nil, demand{direction: 2*1600 + words + classes + dense - 1600, series: 4 * 1600}},
		{"all on one", plainServers, 3, homes{"words": "ps:0", "classes": "ps:0", "lstm.input": "ps:0", "lstm.state": "ps:0", "lstm.bias": "ps:0"},
			demand{direction: 2 * (words + classes + dense), series: 4 * (words + classes + dense)}},
	} {
		if got := c.f(small, rows, c.n, c.at); math.Abs(got.direction-c.want.direction) > 1e-6 || math.Abs(got.series-c.want.series) > 1e-6 {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		d                    demand
		wantLink, wantedStep float64
	}{
		{demand{direction: 200}, 2, 3},              // behind the backward pass
		{demand{direction: 500}, 5, 6},              // longer than that
		{demand{direction: 100, series: 400}, 4, 7}, // never at the same time
	} {
		link := c.d.values(100)[1].Value
		if step := allowed(link, 3, c.d.series > 0); math.Abs(link-c.wantLink) > 1e-9 || math.Abs(step-c.wantedStep) > 1e-9 {
			t.Errorf("%+v: link %v, step %v, want %v and %v", c.d, link, step, c.wantLink, c.wantedStep)
		}
	}
}

func TestComputing(t *testing.T) {
	if got := computing(0.1, 1, 2, 2); got != 0.1 {
		t.Errorf("two hosts on two cores: %v, want 0.1", got)
	}
	if got := computing(0.1, 1.5, 8, 2); math.Abs(got-0.6) > 1e-12 {
		t.Errorf("eight hosts of 1.5 cores on two: %v, want 0.6", got)
	}
}

// The default model touches as many rows as the paper's: it says 0.02 of 9.4 M
// dense and 813.3 M sparse elements, which with its rounding is 0.4 to 1.4 % of
// the sparse ones.
func TestRowsOfTheDefaultModel(t *testing.T) {
	s, err := parse(nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	r, err := countRows(s.model)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.Part < 0.004 || r.Part > 0.014 {
		t.Errorf("%.2f %% of the rows are touched", 100*r.Part)
	}
	if positions := float64(s.model.Batch * s.model.Length); r.Words > positions || r.Words < positions/4 || r.Classes < float64(s.model.Samples) || r.Classes > float64(s.model.Samples)+positions {
		t.Errorf("%+v cannot be", r)
	}
}

func TestParseCPU(t *testing.T) {
	before, err := parseCPU("cpu  100 0 50 1000 10 0 40 0 0 0")
	if err != nil {
		t.Fatal(err)
	}
	after, err := parseCPU("cpu  150 0 100 1050 60 0 40 0 900 0")
	if err != nil {
		t.Fatal(err)
	}
	if before.busy != 190 || before.all != 1200 || after.busy-before.busy != 100 || after.all-before.all != 200 {
		t.Errorf("%+v, %+v", before, after)
	}
	if before.busyCores(before) != 0 {
		t.Error("cores are busy for no time")
	}
	for _, line := range []string{"", "cpu 1 2", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 x 5 6 7 8"} {
		if _, err := parseCPU(line); err == nil {
			t.Errorf("%q is taken", line)
		}
	}
}
