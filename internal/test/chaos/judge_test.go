package chaos

import (
	"strings"
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	good := Sample{measures: measures{Noticed: 1, Back: 3, Redone: 5, Told: 5, Generations: 1, Struck: 20, Digest: sum}}
	with := func(change func(*Sample)) Sample {
		s := good
		change(&s)
		return s
	}
	recovering, staying := promise{outcome: recovers, within: 5 * time.Second}, promise{outcome: goesOn, within: 5 * time.Second}
	for name, c := range map[string]struct {
		promise promise
		sample  Sample
		want    string
	}{
		"kept":              {recovering, good, ""},
		"an exit status":    {recovering, with(func(s *Sample) { s.Code = 1 }), "exit status 1"},
		"other bits":        {recovering, with(func(s *Sample) { s.Digest = "" }), "weights are not those"},
		"no generation":     {recovering, with(func(s *Sample) { s.Generations = 0 }), "made no other generation"},
		"either way":        {promise{outcome: either, within: time.Minute}, with(func(s *Sample) { s.Generations, s.Redone = 0, 0 }), ""},
		"late":              {recovering, with(func(s *Sample) { s.Back = 5.1 }), "went on after 5.1 s"},
		"never":             {recovering, with(func(s *Sample) { s.Back = -1 }), "went on after -1.0 s"},
		"too much again":    {recovering, with(func(s *Sample) { s.Redone = 22 }), "22 steps were made twice"},
		"unsaved":           {recovering, with(func(s *Sample) { s.Unsaved = 1 }), "1 checkpoints were not made"},
		"a sick disk":       {promise{outcome: recovers, within: 5 * time.Second, warns: []string{"x"}}, with(func(s *Sample) { s.Unsaved = 1 }), ""},
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

// What plx says of steps that are made twice is compared with what the chief has
// printed.
func TestToldOf(t *testing.T) {
	for name, c := range map[string]struct {
		cell   Cell
		sample measures
		good   bool
	}{
		"right":               {Cell{"ps", worker, kill}, measures{Generations: 1, Redone: 5, Told: 5}, true},
		"one was not printed": {Cell{"ps", worker, kill}, measures{Generations: 1, Redone: 5, Told: 6}, true},
		"two were not":        {Cell{"ps", worker, kill}, measures{Generations: 1, Redone: 5, Told: 7}, false},
		"at least":            {Cell{"ps", chief, kill}, measures{Generations: 1, Redone: 5, Told: 2}, true},
		"nothing":             {Cell{"ps", chief, kill}, measures{Generations: 1, Redone: 5, Told: -1}, false},
		"nothing was lost":    {Cell{"ps", agent, reset}, measures{Told: -1}, true},
		"nobody was there":    {Cell{"ps", stray, kill}, measures{Generations: 1, Redone: 5, Told: -1}, true},
		"the books say it":    {Cell{"async", chief, kill}, measures{Generations: 1, Redone: 5, Told: 9}, true},
	} {
		if err := (Sample{measures: c.sample}).toldOf(c.cell); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Steps are slow only where a job has to outlast a lease.
func TestPace(t *testing.T) {
	for _, c := range grid() {
		left := time.Duration(steps/2) * c.pace()
		if c.promise().outcome == ends && left < lease {
			t.Errorf("%s: it would be done within %v of the fault", c.Name(), left)
		}
		if c.pace() > fast && c.Victim.person().task != "" && c.Victim != seat && !c.Victim.scaled() && !(c.loose() && c.promise().outcome == goesOn) {
			t.Errorf("%s: steps are slow for nothing", c.Name())
		}
	}
}
