//go:build linux

package sockets

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// If a peer returns other data, or less, Exchange fails but reports that it
// was connected.
func TestExchange(t *testing.T) {
	id := Identity{Secret: make([]byte, cluster.SecretSize), HostIndex: 1}
	for _, c := range []struct {
		name   string
		answer func(net.Conn) error
		want   string
	}{
		{"echo", Echo, ""},
		{"others", func(c net.Conn) error {
			if _, err := io.CopyN(io.Discard, c, exchanged); err != nil {
				return err
			}
			_, err := c.Write(make([]byte, exchanged))
			return err
		}, "other data than was sent"},
		{"less", func(c net.Conn) error {
			if _, err := io.CopyN(io.Discard, c, exchanged); err != nil {
				return err
			}
			_, err := c.Write(make([]byte, exchanged-1))
			return err
		}, "EOF"},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() {
			gate := Identity{Secret: id.Secret, HostIndex: 0}.Gate()
			conn, err := gate.Listener(ln).Accept()
			if err == nil {
				conn, _, err = gate.Accept(t.Context(), conn)
			}
			if err == nil {
				err = c.answer(conn)
				conn.Close()
			}
			served <- err
		}()
		connected, err := id.Exchange(t.Context(), protocol.Peer{Index: 0, Addr: ln.Addr().String()})
		if !connected || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: connected %v, %v, want %q", c.name, connected, err, c.want)
		}
		if err := <-served; err != nil {
			t.Errorf("%s: the peer: %v", c.name, err)
		}
		ln.Close()
	}
}
