// Package transporttest is the test suite that every transport passes: every way to run
// commands on a host and to copy files there.
//
//	func TestTransport(t *testing.T) {
//		transporttest.Run(t, func(t *testing.T) transport.Transport { return dial(t) })
//	}
//
// The host must be this machine, under this user: the suite reads the files that it
// copied. It tests what package transport promises. Each transport tests what it adds, such
// as keys and lost networks.
package transporttest

import (
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/transport"
)

// Run runs the suite. open returns a transport of its own for each test; the
// suite closes it.
func Run(t *testing.T, open func(t *testing.T) transport.Transport) {
	RunCommands(t, open)
	t.Run("Copy", func(t *testing.T) { testCopy(t, open) })
	t.Run("CopyFailure", func(t *testing.T) { testCopyFailure(t, open) })
	t.Run("ParallelCopy", func(t *testing.T) { testParallel(t, open, 10) })
}

// RunCommands is the part of Run for a host that has no way to copy files.
func RunCommands(t *testing.T, open func(t *testing.T) transport.Transport) {
	t.Run("Command", func(t *testing.T) { testCommand(t, open) })
	t.Run("Stream", func(t *testing.T) { testStream(t, open) })
	t.Run("End", func(t *testing.T) { testEnd(t, open) })
	t.Run("Parallel", func(t *testing.T) { testParallel(t, open, 0) })
}

// opened opens a transport that is closed with the test.
func opened(t *testing.T, open func(*testing.T) transport.Transport) transport.Transport {
	t.Helper()
	conn := open(t)
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return conn
}

// within fails the test when f, which is quick, does not end.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience.Limit):
		t.Fatalf("%s took more than %v", what, patience.Limit)
	}
}
