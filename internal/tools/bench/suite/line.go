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
	goal   float64                                    // largest acceptable ratio of plx's time to the other program's
	over   bool                                       // if true, goal is the number of seconds by which plx may be slower
	has    func(ctx context.Context) error            // untimed setup, once per round; nil means none
	before func(ctx context.Context, round int) error // untimed setup before each timed way; nil means none
	plx    way
	beyond way // a part of plx's work whose time is subtracted; no name means nothing is subtracted
	peer   way
}

// way is one way to do the work of a line. Its time is that of run, unless
// measures is set, which returns the time.
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
		syscall.Sync() // flush first, so that no way pays for data that another has written
		took, err := ways[k].time(ctx)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("%s: %w", ways[k].name, err)
		}
		*into[k] = took.Seconds()
	}
	return plx, beyond, peer, nil
}
