//go:build linux

package sockets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// exchanged is how many bytes an Exchange sends in each direction: several packets of the
// largest kind, so that a network that passes small packets only is noticed.
const exchanged = 64 << 10

// Bounds of an exchange.
const (
	exchangeDial = 6 * time.Second // above the kernel's second attempt to connect
	exchangeTime = 6 * time.Second
	echoTime     = 10 * time.Second // longer: the end that dials tells what failed
)

// Exchange dials another agent, which calls Echo, and sends so much that packets are as
// large as they get. It returns within 12 s. connected tells that the peer has answered
// and has proved the secret.
func (id Identity) Exchange(ctx context.Context, peer protocol.Peer) (connected bool, err error) {
	late := fmt.Errorf("no answer within %v", exchangeDial)
	dialling, cancel := context.WithTimeoutCause(ctx, exchangeDial, late)
	defer cancel()
	conn, err := id.Dial(dialling, peer)
	if err != nil {
		switch {
		case dialling.Err() != nil:
			err = context.Cause(dialling)
		case errors.Is(err, os.ErrDeadlineExceeded): // the socket has the same deadline, and was first
			err = late
		}
		return false, err
	}
	defer conn.Close() // what counts has arrived
	conn.SetDeadline(time.Now().Add(exchangeTime))
	sent := bytes.Repeat([]byte("plx "), exchanged/4)
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		written <- err
	}()
	got := make([]byte, exchanged)
	_, err = io.ReadFull(conn, got)
	if err != nil {
		conn.Close() // the writer ends
	}
	if wrote := <-written; err == nil {
		err = wrote
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no answer within %v", exchangeTime)
	case err == nil && !bytes.Equal(sent, got):
		err = errors.New("what came back is not what was sent")
	}
	return true, err
}

// Echo sends back what an Exchange sends, and closes the connection.
func Echo(conn net.Conn) error {
	defer conn.Close() // the other end has read all, or has failed
	conn.SetDeadline(time.Now().Add(echoTime))
	buf := make([]byte, exchanged)
	if _, err := io.ReadFull(conn, buf); err != nil {
		return err
	}
	_, err := conn.Write(buf)
	if err == nil {
		_, err = conn.Read(buf[:1]) // the other end closes: data on its way is not cut off
	}
	if err == io.EOF {
		return nil
	}
	return err
}
