package exchange

import (
	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// A worker's connection is written by one goroutine, which is told what to
// send by events of the shards and by those below. None of these is part of a
// step.

// sends is a frame that is sent as it is.
type sends wire.Frame

func (sends) Counted() bool { return false }

// succeeds says that variables have moved: from now on other shards tell.
type succeeds struct {
	next   *aggregate.Shards
	events <-chan aggregate.Event // where the worker hears from them
	step   uint64                 // the first one of theirs
}

func (succeeds) Counted() bool { return false }

// members is the host of one server's shards: those who are told of steps.
type members struct {
	memory func(layout.Piece) []byte // where dense values are kept, or nil
	tell   []func(aggregate.Event)   // by rank; never blocks; set before the first step
	fail   func(error)               // ends the training
}

func newMembers(n int, fail func(error), memory func(layout.Piece) []byte) *members {
	return &members{memory: memory, tell: make([]func(aggregate.Event), n), fail: fail}
}

func (m *members) Memory(p layout.Piece) []byte     { return m.memory(p) }
func (m *members) Tell(rank int, e aggregate.Event) { m.tell[rank](e) }
func (m *members) Fail(err error)                   { m.fail(err) }

// noMemory lets shards make their own.
func noMemory(layout.Piece) []byte { return nil }
