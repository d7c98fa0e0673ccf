// Package transporttest is a test suite for transports, which run commands on
// a host and copy files to it.
//
//	func TestTransport(t *testing.T) {
//		transporttest.Run(t, func(t *testing.T) transport.Transport { return dial(t) })
//	}
//
// The host must be the test's own machine, and the user the one that runs the
// test, because the suite reads the copied files. The suite checks what the
// documentation of package transport promises. Properties of a single
// transport, such as SSH keys and lost connections, have their own tests.
package transporttest

import (
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/transport"
)

// Run runs the suite. The function open returns a new transport for each test;
// the suite closes the transport.
func Run(t *testing.T, open func(t *testing.T) transport.Transport) {
	RunCommands(t, open)
	t.Run("Copy", func(t *testing.T) { testCopy(t, open) })
	t.Run("CopyFailure", func(t *testing.T) { testCopyFailure(t, open) })
	t.Run("ParallelCopy", func(t *testing.T) { testParallel(t, open, 10) })
}

// RunCommands runs the part of the suite for hosts to which no files can be
// copied.
func RunCommands(t *testing.T, open func(t *testing.T) transport.Transport) {
	t.Run("Command", func(t *testing.T) { testCommand(t, open) })
	t.Run("Stream", func(t *testing.T) { testStream(t, open) })
	t.Run("End", func(t *testing.T) { testEnd(t, open) })
	t.Run("Parallel", func(t *testing.T) { testParallel(t, open, 0) })
}

// opened opens a transport and closes it at the end of the test.
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

// within calls f and fails the test if f does not return within
// patience.Limit.
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
