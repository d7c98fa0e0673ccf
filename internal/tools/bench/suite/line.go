package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// line is a row of the result table. It compares the time of plx with that of
// another program.
type line struct {
	name   string
	goal   float64                                    // largest acceptable time of plx, divided by the other program's time
	over   bool                                       // if true, goal is the number of seconds by which plx may be slower
	has    func(ctx context.Context) error            // setup that is not timed, once per round; nil means none
	before func(ctx context.Context, round int) error // setup that is not timed, before each way; nil means none
	plx    way
	beyond way // a part of plx's work whose time is subtracted from plx's time; if it has no name, nothing is subtracted
	peer   way
}

// way is one way to do the work of a line, by plx or by another program. Its
// time is how long the function run takes. If the function measures is set, it
// returns the time instead.
type way struct {
	name     string
	run      func(ctx context.Context) error
	measures func(ctx context.Context) (time.Duration, error)
}

// time runs the way and returns how long it took.
func (w way) time(ctx context.Context) (time.Duration, error) {
	if w.measures != nil {
		return w.measures(ctx)
	}
	begun := time.Now()
	err := w.run(ctx)
	return time.Since(begun), err
}

// times runs all ways and returns their times in seconds. The order of the
// ways depends on the round.
func (l line) times(ctx context.Context, round int) (plx, beyond, peer float64, err error) {
	if l.has != nil {
		if err := l.has(ctx); err != nil {
			return 0, 0, 0, err
		}
	}
	ways := []way{l.peer, l.beyond, l.plx}
	into := []*float64{&peer, &beyond, &plx}
	for i := range ways {
		k := (i + round) % len(ways)
		if ways[k].name == "" {
			continue
		}
		if l.before != nil {
			if err := l.before(ctx, round); err != nil {
				return 0, 0, 0, err
			}
		}
		syscall.Sync() // write all data to disk first, so that a way does not pay for data that another way has written
		took, err := ways[k].time(ctx)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("%s: %w", ways[k].name, err)
		}
		*into[k] = took.Seconds()
	}
	return plx, beyond, peer, nil
}
