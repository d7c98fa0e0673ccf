package chaos

import (
	"strings"
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	good := Sample{Measures: Measures{Noticed: 1, Back: 3, Redone: 5, Told: 5, Generations: 1, Struck: 20, Digest: sum}}
	with := func(change func(*Sample)) Sample {
		s := good
		change(&s)
		return s
	}
	recovering, staying := Promise{Outcome: Recovers, Within: 5 * time.Second}, Promise{Outcome: GoesOn, Within: 5 * time.Second}
	for name, c := range map[string]struct {
		promise Promise
		sample  Sample
		want    string
	}{
		"kept":              {recovering, good, ""},
		"an exit status":    {recovering, with(func(s *Sample) { s.Code = 1 }), "exit status 1"},
		"other bits":        {recovering, with(func(s *Sample) { s.Digest = "" }), "weights are not those"},
		"no generation":     {recovering, with(func(s *Sample) { s.Generations = 0 }), "made no other generation"},
		"either way":        {Promise{Outcome: Either, Within: time.Minute}, with(func(s *Sample) { s.Generations, s.Redone = 0, 0 }), ""},
		"late":              {recovering, with(func(s *Sample) { s.Back = 5.1 }), "went on after 5.1 s"},
		"never":             {recovering, with(func(s *Sample) { s.Back = -1 }), "went on after -1.0 s"},
		"too much again":    {recovering, with(func(s *Sample) { s.Redone = 22 }), "22 steps were made twice"},
		"unsaved":           {recovering, with(func(s *Sample) { s.Unsaved = 1 }), "1 checkpoints were not made"},
		"a sick disk":       {Promise{Outcome: Recovers, Within: 5 * time.Second, Warns: []string{"x"}}, with(func(s *Sample) { s.Unsaved = 1 }), ""},
		"a needless effort": {staying, good, "none was needed"},
		"it stays":          {staying, with(func(s *Sample) { s.Generations, s.Redone = 0, 0 }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := verdict(c.promise, c.sample, sum)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// The number of recomputed steps that plx reports must agree with the steps
// that the chief printed.
func TestReportedRecomputedStepsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		cell   Cell
		sample Measures
		good   bool
	}{
		"right":               {Cell{"ps", Worker, Kill}, Measures{Generations: 1, Redone: 5, Told: 5}, true},
		"one was not printed": {Cell{"ps", Worker, Kill}, Measures{Generations: 1, Redone: 5, Told: 6}, true},
		"two were not":        {Cell{"ps", Worker, Kill}, Measures{Generations: 1, Redone: 5, Told: 7}, false},
		"at least":            {Cell{"ps", Chief, Kill}, Measures{Generations: 1, Redone: 5, Told: 2}, true},
		"nothing":             {Cell{"ps", Chief, Kill}, Measures{Generations: 1, Redone: 5, Told: -1}, false},
		"nothing was lost":    {Cell{"ps", Agent, Reset}, Measures{Told: -1}, true},
		"nobody was there":    {Cell{"ps", Stray, Kill}, Measures{Generations: 1, Redone: 5, Told: -1}, true},
		"the books say it":    {Cell{"async", Chief, Kill}, Measures{Generations: 1, Redone: 5, Told: 9}, true},
	} {
		if err := (Sample{Measures: c.sample}).toldOf(c.cell); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRelaunched(t *testing.T) {
	for want, next := range map[string]Measures{
		"": {Resumed: 14, Digest: sum}, "went on after 13 steps, there had been 35": {Resumed: 13, Digest: sum},
		"went on after -1 steps": {Resumed: -1, Digest: sum}, "weights are not those": {Resumed: 28, Digest: "x"},
	} {
		var s Sample
		err := s.Relaunched(34, next, sum)
		if want == "" && (err != nil || s.Redone != 21 || s.Reached != 34) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q: %+v", err, want, s)
		}
	}
}

// All words of a promise must be in one line after the fault.
func TestNamed(t *testing.T) {
	script := NewTranscript()
	say := func(text string) { _, _ = script.Write([]byte(text + "\n")) }
	say("plx: worker:1 on h2 was ended by signal 9")
	struck := time.Now()
	c := Cell{"ps", Worker, Kill}
	for _, text := range []string{"plx: worker:1 on h2 has gone", "plx: it was signal 9", "worker:0 h1 ! plx: worker:1 on h2: signal 9", "plx: worker:1 on h3: signal 9"} {
		say(text)
		if said, err := script.Named(c, struck, "h2", "10.0.0.2"); err == nil {
			t.Errorf("%q names it", said)
		}
	}
	say("plx: signal 9 has ended worker:1 on h2")
	if said, err := script.Named(c, struck, "h2", "10.0.0.2"); err != nil || said != "plx: signal 9 has ended worker:1 on h2" {
		t.Errorf("%q, %v", said, err)
	}
	full := Cell{"ps", Worker, Full}
	say("worker:1 h2 ! plx: no space left on 10.0.0.2")
	if said, err := script.Named(full, struck, "h2", "10.0.0.2"); err != nil || !strings.Contains(said, "! plx: no space") {
		t.Errorf("%q, %v", said, err)
	}
	if err := script.Scaled(0); err == nil {
		t.Error("nothing was scaled")
	}
	say("plx: scaled from 2 to 3 hosts")
	if script.Scaled(0) != nil || script.Scaled(125) == nil {
		t.Error("an exit status that does not belong to it")
	}
}

// Only jobs that must run for longer than a lease may have slow steps.
func TestPace(t *testing.T) {
	for _, c := range Grid() {
		left := time.Duration(Steps/2) * c.Pace()
		if c.Promise().Outcome == Ends && left < Lease {
			t.Errorf("%s: it would be done within %v of the fault", c.Name(), left)
		}
		if c.Pace() > Fast && c.Victim.person().task != "" && c.Victim != Seat && !c.Victim.Scaled() && !(c.Loose() && c.Promise().Outcome == GoesOn) {
			t.Errorf("%s: steps are slow for nothing", c.Name())
		}
	}
}
