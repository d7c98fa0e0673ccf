//go:build long && linux

package sockets

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// TestManyAgentsReachTheChief measures the check in which all agents dial the
// chief's agent at once, as at the start of a job. docs/scale.md quotes what
// it prints.
func TestManyAgentsReachTheChief(t *testing.T) {
	secret := make([]byte, cluster.SecretSize)
	for _, agents := range []int{256, 1000, 4000} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		gate := Identity{Secret: secret}.Gate()
		ln = gate.Listener(ln)
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				serving.Go(func() {
					if conn, _, err := gate.Accept(t.Context(), conn); err == nil {
						conn.Close() // ReachAll only opens and closes a connection, so this end closes it too
					}
				})
			}
		})
		var dialling sync.WaitGroup
		var failures atomic.Int32
		var cause atomic.Pointer[string] // of one of them
		cause.Store(new(string))
		begun := time.Now()
		for i := range agents {
			dialling.Go(func() {
				id := Identity{Secret: secret, HostIndex: i + 1}
				for _, f := range id.ReachAll([]protocol.Peer{{Index: 0, Host: "chief", Addr: ln.Addr().String()}}) {
					failures.Add(1)
					cause.Store(&f.Cause)
				}
			})
		}
		dialling.Wait()
		if n := failures.Load(); n > 0 && agents <= 1000 {
			t.Errorf("%d of %d agents could not reach the chief's: %s", n, agents, *cause.Load())
		}
		fmt.Printf("%d agents dial one at once: %d could not reach it, %v %s\n", agents, failures.Load(), time.Since(begun).Round(time.Millisecond), *cause.Load())
		ln.Close()
		serving.Wait()
	}
}
