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

// exchanged is how many bytes Exchange sends in each direction. They fill
// several packets of the largest size, so the test also detects a network that
// drops large packets.
const exchanged = 64 << 10

// Timeouts of the connection test between two agents.
const (
	exchangeDial = 6 * time.Second // long enough for the kernel to retransmit its SYN packet
	exchangeTime = 6 * time.Second
	// Longer than exchangeTime, so that the dialling agent times out first and
	// reports the failure.
	echoTime = 10 * time.Second
)

// Exchange tests the connection to another agent: it dials the agent, sends
// test data, and checks that the agent's Echo returns the same data. It takes
// at most 12 s. connected is true if the peer answered and proved that it
// knows the job's secret.
func (id Identity) Exchange(ctx context.Context, peer protocol.Peer) (connected bool, err error) {
	late := fmt.Errorf("no answer within %v", exchangeDial)
	dialling, cancel := context.WithTimeoutCause(ctx, exchangeDial, late)
	defer cancel()
	conn, err := id.Dial(dialling, peer)
	if err != nil {
		switch {
		case dialling.Err() != nil:
			err = context.Cause(dialling)
		case errors.Is(err, os.ErrDeadlineExceeded): // the socket has the same deadline as ctx, and reported it first
			err = late
		}
		return false, err
	}
	defer conn.Close() // at this point all data has been received, or the test has failed
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
		conn.Close() // closing makes the writing goroutine above return
	}
	if wrote := <-written; err == nil {
		err = wrote
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no answer within %v", exchangeTime)
	case err == nil && !bytes.Equal(sent, got):
		err = errors.New("the peer returned other data than was sent")
	}
	return true, err
}

// Echo answers the test that another agent makes with Exchange: it sends back
// the bytes that it receives, and closes the connection.
func Echo(conn net.Conn) error {
	defer conn.Close() // at this point the peer has read all data, or the test has failed
	conn.SetDeadline(time.Now().Add(echoTime))
	buf := make([]byte, exchanged)
	if _, err := io.ReadFull(conn, buf); err != nil {
		return err
	}
	_, err := conn.Write(buf)
	if err == nil {
		_, err = conn.Read(buf[:1]) // wait until the peer closes; if this process closed first, data in transit could be lost
	}
	if err == io.EOF {
		return nil
	}
	return err
}
