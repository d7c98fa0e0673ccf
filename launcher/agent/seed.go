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
	maxDownloads    = 8                // maximum number of simultaneous downloads; further connections are closed
	tokenTimeout    = 5 * time.Second  // how long the server waits for a client's token
	downloadTimeout = time.Minute      // timeout of one download of the plx binary
	seedTime        = 10 * time.Minute // the server stops after this time
)

// seed is a TCP server that sends the plx binary to other hosts of the job.
// They have no agent yet, so their login shells download it.
type seed struct {
	mu  sync.Mutex
	end func() // stops the server; nil if none runs
}

// begin starts a server that sends the plx binary, and returns its port. It
// stops the server of an earlier call.
func (s *seed) begin(_ context.Context, of protocol.Seed) (port int, err error) {
	if of.Token == "" {
		return 0, errors.New("serve plx to other hosts: no token")
	}
	ln, err := sockets.ListenRange{Addr: of.Addr, Low: of.Low, High: of.High}.ListenData()
	if err != nil {
		return 0, err
	}
	addr, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(errors.New("serve plx to other hosts: no TCP port"), ln.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), seedTime)
	context.AfterFunc(ctx, func() { ln.Close() }) // a listener has no buffered data to lose
	s.close()
	s.mu.Lock()
	s.end = cancel
	s.mu.Unlock()
	go serveBinary(ctx, ln, of.Token)
	return addr.Port, nil
}

// close stops the server. Downloads in progress may continue for up to a
// minute.
func (s *seed) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		s.end()
	}
	s.end = nil
}

func serveBinary(ctx context.Context, ln net.Listener, token string) {
	slots := make(chan struct{}, maxDownloads)
	for {
		conn, err := ln.Accept()
		if err != nil || ctx.Err() != nil {
			return
		}
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				sendBinary(conn, token) // ignore an error: the client compares the checksum, and so detects an incomplete download
			}()
		default:
			conn.Close() // too many downloads: the client gets no data and reports that
		}
	}
}

// sendBinary sends this executable to a client that sends the token first.
func sendBinary(conn net.Conn, token string) {
	defer conn.Close() // the client detects an incomplete download by its checksum
	received := make([]byte, len(token))
	if conn.SetDeadline(time.Now().Add(tokenTimeout)) != nil {
		return
	}
	if _, err := io.ReadFull(conn, received); err != nil || subtle.ConstantTimeCompare(received, []byte(token)) != 1 {
		return
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return
	}
	defer self.Close() // the file was only read
	if conn.SetDeadline(time.Now().Add(downloadTimeout)) == nil {
		_, _ = io.Copy(conn, self)
	}
}
