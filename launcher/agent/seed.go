//go:build linux

package agent

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

const (
	mostTakers = 8                // connections at a time
	tellTime   = 5 * time.Second  // until a connection has told the token
	takeTime   = time.Minute      // until it has taken the program
	seedTime   = 10 * time.Minute // of all, whatever the launcher does
)

// seed gives this program to other hosts, whose shells take it: they have no agent yet.
type seed struct {
	mu  sync.Mutex
	end func() // nil: it gives to nobody
}

// begin begins to give, and returns the port. It ends what began before.
func (s *seed) begin(_ context.Context, of protocol.Seed) (port int, err error) {
	if of.Token == "" {
		return 0, errors.New("give plx to other hosts: no token")
	}
	ln, err := sockets.Place{Addr: of.Addr, Low: of.Low, High: of.High}.ListenData()
	if err != nil {
		return 0, err
	}
	addr, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(errors.New("give plx to other hosts: no port"), ln.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), seedTime)
	context.AfterFunc(ctx, func() { ln.Close() }) // nothing was written to it
	s.close()
	s.mu.Lock()
	s.end = cancel
	s.mu.Unlock()
	go giveAway(ctx, ln, of.Token)
	return addr.Port, nil
}

// close gives to nobody more. What is under way goes on for a minute at most.
func (s *seed) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		s.end()
	}
	s.end = nil
}

func giveAway(ctx context.Context, ln net.Listener, token string) {
	places := make(chan struct{}, mostTakers)
	for {
		conn, err := ln.Accept()
		if err != nil || ctx.Err() != nil {
			return
		}
		select {
		case places <- struct{}{}:
			go func() {
				defer func() { <-places }()
				giveSelf(conn, token) // who does not get it all notices
			}()
		default:
			conn.Close() // it gets nothing, and notices
		}
	}
}

// giveSelf writes this program to whoever tells the token.
func giveSelf(conn net.Conn, token string) {
	defer conn.Close() // the other end compares the hash
	told := make([]byte, len(token))
	if conn.SetDeadline(time.Now().Add(tellTime)) != nil {
		return
	}
	if _, err := io.ReadFull(conn, told); err != nil || subtle.ConstantTimeCompare(told, []byte(token)) != 1 {
		return
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return
	}
	defer self.Close() // only read
	if conn.SetDeadline(time.Now().Add(takeTime)) == nil {
		_, _ = io.Copy(conn, self)
	}
}
