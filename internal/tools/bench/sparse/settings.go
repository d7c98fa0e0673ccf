package main

import (
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/test/measured"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// modelSettings is the size of the language model and of a worker's batch.
type modelSettings struct {
	Vocabulary int `json:"vocabulary"`
	Width      int `json:"width"`
	Hidden     int `json:"hidden"`
	Length     int `json:"length"`
	Batch      int `json:"batch"`   // rows of text of one worker
	Samples    int `json:"samples"` // of one worker
}

// words is how many of them a step of so many workers reads.
func (m modelSettings) words(workers int) int { return workers * m.Batch * m.Length }

// The two modes.
const (
	comparing    = "sparse"
	partitioning = "partitions"
)

// settings are the program's flags.
type settings struct {
	mode         string
	model        modelSettings
	hosts, parts []int
	rates        []string
	only         []string // systems; none: all
	rounds       int
	steps        int           // measured ones of a run at most
	window       time.Duration // that a run is measured
	settle       int           // steps before a system that moves variables is measured
	limit        time.Duration // of a run
	raw          float64       // seconds of the raw measurement
	quick        bool
	render       bool
	out, root    string
	plx, lm      string // programs, built where empty
	logs         string // folder
}

// parse reads the command line: the mode, where it is not comparing, then
// flags.
func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{mode: comparing, hosts: []int{1, 2, 4, 8}, parts: []int{1, 2, 4, 8, 16}, rates: []string{"100mbit", "1gbit"}}
	if len(args) > 0 && args[0] == partitioning {
		s.mode, args = partitioning, args[1:]
		s.hosts = []int{8}
	}
	f := flag.NewFlagSet(s.mode, flag.ContinueOnError)
	f.SetOutput(stderr)
	s.define(f)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q: want flags only, or first of all %s", f.Arg(0), partitioning)
	}
	if s.quick {
		set := map[string]bool{}
		f.Visit(func(x *flag.Flag) { set[x.Name] = true })
		s.beQuick(set)
	}
	var err error
	if s.root, err = measured.Root(); err != nil && (s.out == "" || s.plx == "" || s.lm == "") {
		return nil, err
	}
	if s.out == "" {
		s.out = filepath.Join(s.root, "docs")
	}
	return s, s.check()
}

func (s *settings) define(f *flag.FlagSet) {
	f.Func("hosts", "numbers of `hosts` (default 1,2,4,8; partitions: 8)", numbers(&s.hosts))
	f.Func("partitions", "numbers of `partitions` to try (default 1,2,4,8,16)", numbers(&s.parts))
	f.Func("rates", "`rates` of the links, as tc writes them (default 100mbit,1gbit)", names(&s.rates))
	f.Func("only", "`systems` to measure, by their short names (default all)", names(&s.only))
	f.IntVar(&s.rounds, "rounds", 3, "`times` that everything is measured")
	f.IntVar(&s.model.Vocabulary, "vocabulary", 100_000, "`words`")
	f.IntVar(&s.model.Width, "width", 128, "`elements` of a word's vector")
	f.IntVar(&s.model.Hidden, "hidden", 128, "`cells` of the LSTM")
	f.IntVar(&s.model.Length, "length", 20, "`words` that gradients go back")
	f.IntVar(&s.model.Batch, "batch", 22, "`rows` of text of each worker")
	f.IntVar(&s.model.Samples, "samples", 1408, "`samples` of each worker's softmax")
	f.IntVar(&s.steps, "steps", 200, "`steps` of a run that count, at most")
	f.DurationVar(&s.window, "window", 20*time.Second, "`time` that a run is measured; never less than three steps")
	f.IntVar(&s.settle, "settle", 200, "`steps` that plx is given to place its variables before it is measured")
	f.DurationVar(&s.limit, "limit", 15*time.Minute, "`time` after which a run has failed")
	f.Float64Var(&s.raw, "raw-seconds", 3, "`seconds` for which TCP alone is measured on each rate")
	f.BoolVar(&s.quick, "quick", false, "a tiny model on two hosts, in less than a minute: numbers that say nothing")
	f.BoolVar(&s.render, "render", false, "measure nothing, write tables and plots from the samples")
	f.StringVar(&s.out, "out", "", "`folder` for benchmarks.md and benchmarks/ (default the module's docs)")
	f.StringVar(&s.plx, "plx", "", "`program` instead of the plx that is built")
	f.StringVar(&s.lm, "lm", "", "`program` instead of the examples/lm that is built")
	f.StringVar(&s.logs, "logs", "", "`folder` for what every run prints")
}

// beQuick takes little of everything that was not asked for.
func (s *settings) beQuick(set map[string]bool) {
	quick := settings{hosts: []int{2}, parts: []int{1, 2}, rates: []string{"1gbit"}, rounds: 1, steps: 5, settle: 5, window: time.Second, raw: 0.2,
		limit: time.Minute, model: modelSettings{Vocabulary: 2000, Width: 16, Hidden: 16, Length: 5, Batch: 4, Samples: 32}}
	for name, take := range map[string]func(){
		"hosts": func() { s.hosts = quick.hosts }, "partitions": func() { s.parts = quick.parts }, "rates": func() { s.rates = quick.rates },
		"rounds": func() { s.rounds = quick.rounds }, "steps": func() { s.steps = quick.steps }, "settle": func() { s.settle = quick.settle },
		"window": func() { s.window = quick.window }, "raw-seconds": func() { s.raw = quick.raw }, "limit": func() { s.limit = quick.limit },
		"vocabulary": func() { s.model.Vocabulary = quick.model.Vocabulary }, "width": func() { s.model.Width = quick.model.Width },
		"hidden": func() { s.model.Hidden = quick.model.Hidden }, "length": func() { s.model.Length = quick.model.Length },
		"batch": func() { s.model.Batch = quick.model.Batch }, "samples": func() { s.model.Samples = quick.model.Samples },
	} {
		if !set[name] {
			take()
		}
	}
}

func (s *settings) check() error {
	m := s.model
	for _, c := range []struct {
		name         string
		value, least int
	}{
		{"rounds", s.rounds, 1}, {"steps", s.steps, 3}, {"settle", s.settle, 1}, {"vocabulary", m.Vocabulary, 2 * m.Samples},
		{"width", m.Width, 1}, {"hidden", m.Hidden, 1}, {"length", m.Length, 1}, {"batch", m.Batch, 1}, {"samples", m.Samples, 1},
	} {
		if c.value < c.least {
			return fmt.Errorf("--%s is %d: want at least %d", c.name, c.value, c.least)
		}
	}
	for _, rate := range s.rates {
		if _, err := testhosts.ParseRate(rate); err != nil {
			return fmt.Errorf("--rates: %w", err)
		}
	}
	if !(s.raw > 0 && s.raw <= 60) {
		return fmt.Errorf("--raw-seconds is %v: want up to 60", s.raw)
	}
	_, err := s.systems()
	return err
}

// file is where the samples are.
func (s *settings) file() string { return filepath.Join(s.out, "benchmarks", s.mode+".json") }

func numbers(to *[]int) func(string) error {
	return func(list string) error {
		*to = nil
		for field := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(field)
			if err != nil || n < 1 || n > 200 {
				return fmt.Errorf("%q: want numbers from 1 to 200", field)
			}
			*to = append(*to, n)
		}
		return nil
	}
}

func names(to *[]string) func(string) error {
	return func(list string) error {
		*to = strings.Split(list, ",")
		return nil
	}
}
