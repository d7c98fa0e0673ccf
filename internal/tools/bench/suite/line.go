package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// line is a row of the table: the time that plx takes, over that of another program.
type line struct {
	name   string
	goal   float64                                    // the largest ratio that is wanted
	over   bool                                       // goal is seconds, by which plx may exceed the peer
	has    func(ctx context.Context) error            // is not timed; runs once in a round, before all ways; nil: nothing
	before func(ctx context.Context, round int) error // is not timed; runs before each way; nil: nothing
	plx    way
	beyond way // what plx does too, and is not counted; without a name: nothing
	peer   way
}

// way is one way to do what a line is about. It is timed from its start to its end, unless it
// measures its time itself.
type way struct {
	name     string
	run      func(ctx context.Context) error
	measures func(ctx context.Context) (time.Duration, error)
}

// time does it, and returns how long it took.
func (w way) time(ctx context.Context) (time.Duration, error) {
	if w.measures != nil {
		return w.measures(ctx)
	}
	begun := time.Now()
	err := w.run(ctx)
	return time.Since(begun), err
}

// times are those of the ways, in seconds, in an order that the round chooses.
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
		syscall.Sync() // nobody pays for what the others wrote
		took, err := ways[k].time(ctx)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("%s: %w", ways[k].name, err)
		}
		*into[k] = took.Seconds()
	}
	return plx, beyond, peer, nil
}
