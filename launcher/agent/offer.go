//go:build linux

package agent

import (
	"bufio"
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

const (
	maxOffer  = 4 << 10          // bytes of a protocol.Offer
	most      = 8                // connections at a time
	tellTime  = 5 * time.Second  // until a connection has told the token
	takeTime  = time.Minute      // until it has taken the program
	offerTime = 10 * time.Minute // of the whole command, whatever its input does
)

// offer is "agent offer": it gives its own program to other hosts, until its input ends.
// Their shells take it: they have no agent yet.
func offer(ctx context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("offer takes no arguments")
	}
	ctx, cancel := context.WithTimeout(ctx, offerTime)
	defer cancel()
	in := bufio.NewReaderSize(std.in, maxOffer)
	line, err := in.ReadSlice('\n')
	var o protocol.Offer
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil || o.Token == "" {
		return fmt.Errorf("read what to offer: %w", err)
	}
	ln, err := sockets.Place{Addr: o.Addr, Low: o.Low, High: o.High}.ListenData()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { ln.Close() })() // closed twice does no harm
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err == nil {
		_, err = fmt.Fprintln(std.out, port)
	}
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // ended or broken, nobody wants more
		cancel()
	}()
	var giving sync.WaitGroup
	defer giving.Wait()
	places := make(chan struct{}, most)
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case places <- struct{}{}:
			giving.Go(func() {
				defer func() { <-places }()
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				giveSelf(conn, o.Token) // who does not get it all notices
			})
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
