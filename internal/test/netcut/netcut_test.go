package netcut

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

// echo starts a server that sends back each line.
func echo(t *testing.T) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	return ln
}

func dial(t *testing.T, v *Proxy) net.Conn {
	conn, err := net.Dial("tcp", v.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestOpenProxyForwardsDataAndClose(t *testing.T) {
	ln := echo(t)
	conn := dial(t, New(t, ln.Addr().String()))
	for _, line := range []string{"one\n", "two\n"} {
		io.WriteString(conn, line)
		if got, err := bufio.NewReader(conn).ReadString('\n'); got != line || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	conn.(*net.TCPConn).CloseWrite()
	conn.SetReadDeadline(time.Now().Add(patience.Limit))
	if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v, want that the other side is gone", n, err)
	}
}

func TestShutProxyForwardsNothingAndKeepsConnections(t *testing.T) {
	ln := echo(t)
	v := New(t, ln.Addr().String())
	before := dial(t, v)
	io.WriteString(before, "x")
	if _, err := io.ReadFull(before, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	v.Shut()
	v.Shut()
	for _, conn := range []net.Conn{before, dial(t, v)} {
		if _, err := io.WriteString(conn, "y"); err != nil {
			t.Error(err)
		}
		conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes, %v, want silence", n, err)
		}
	}
}

func TestProxyHangsUpIfTheTargetIsUnreachable(t *testing.T) {
	ln := echo(t)
	ln.Close()
	conn := dial(t, New(t, ln.Addr().String()))
	conn.SetReadDeadline(time.Now().Add(patience.Limit))
	if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", n, err)
	}
}
