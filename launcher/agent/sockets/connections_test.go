//go:build linux

package sockets

import (
	"net"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"golang.org/x/sys/unix"
)

// TestConnections finds both ends of a TCP connection whose receiver does not
// read.
func TestConnections(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		const sent = 1000
		if _, err := client.Write(make([]byte, sent)); err != nil {
			t.Fatal(err)
		}
		ours := find(t, client.LocalAddr().String(), func(c Connection) bool { return c.Moved >= sent })
		if ours.Peer.String() != ln.Addr().String() || ours.State != unix.BPF_TCP_ESTABLISHED || ours.Unsent != 0 || ours.Inode == 0 || ours.Sent > time.Minute {
			t.Errorf("the client's end: %+v", ours)
		}
		if listener := find(t, ln.Addr().String(), func(c Connection) bool { return c.State == unix.BPF_TCP_LISTEN }); listener.Unread != 1 {
			t.Errorf("the listener: %+v, want one connection that nobody has accepted", listener)
		}
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		theirs := find(t, ln.Addr().String(), func(c Connection) bool { return c.State != unix.BPF_TCP_LISTEN && c.Inode != 0 })
		if theirs.Unread != sent || theirs.Peer.String() != client.LocalAddr().String() || theirs.Received > time.Minute {
			t.Errorf("the server's end: %+v", theirs)
		}
	}
}

// find waits for a connection with the given local address that satisfies
// meant.
func find(t *testing.T, local string, meant func(Connection) bool) Connection {
	t.Helper()
	for end := time.Now().Add(patience.Limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		all, err := Connections()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if c.Local.String() == local && meant(c) {
				return c
			}
		}
	}
	t.Fatalf("no connection at %s", local)
	return Connection{}
}

func FuzzParseAnswers(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 200))
	message := make([]byte, 16+answerSize+4+infoSize)
	message[0], message[4], message[16] = byte(len(message)), unix.SOCK_DIAG_BY_FAMILY, unix.AF_INET
	message[16+answerSize], message[16+answerSize+2] = 4+infoSize, infoAttribute
	f.Add(message)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, all, _ := parseAnswers(b); len(all) > len(b)/answerSize {
			t.Errorf("%d sockets in %d bytes", len(all), len(b))
		}
	})
}
