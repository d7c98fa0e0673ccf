package sshserver

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/launcher/ssh"
)

// mute is how long the client, which asks every 5 s, may be silent on a pipe.
const mute = time.Minute

// ServePipe serves the client at the other end of in and out, until in ends or is silent for a
// minute. It first prints word and its key on a line. Who has the pipe needs no key of its
// own.
func ServePipe(in io.Reader, out io.Writer, word string) error {
	key, err := ssh.NewKey()
	if err != nil {
		return err
	}
	config := &gossh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(key)
	if _, err := fmt.Fprintf(out, "%s %s", word, gossh.MarshalAuthorizedKey(key.PublicKey())); err != nil {
		return err
	}
	conn := &pipe{in: in, out: out}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(conn, config)
	}()
	tick := time.NewTicker(mute)
	defer tick.Stop()
	for heard := int64(-1); ; {
		select {
		case <-ended:
			return nil
		case <-tick.C:
			now := conn.heard.Load()
			if now == heard {
				return fmt.Errorf("the launcher was silent for %v", mute)
			}
			heard = now
		}
	}
}

// pipe is the standard input and output as a connection.
type pipe struct {
	in    io.Reader
	out   io.Writer
	heard atomic.Int64 // bytes that were read
}

func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.in.Read(b)
	p.heard.Add(int64(n))
	return n, err
}

func (p *pipe) Write(b []byte) (int, error) { return p.out.Write(b) }

// Close ends the input and the output, as far as they can be closed.
func (p *pipe) Close() error {
	for _, end := range []any{p.in, p.out} {
		if c, ok := end.(io.Closer); ok {
			c.Close() // the launcher notices
		}
	}
	return nil
}

func (p *pipe) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "standard output", Net: "pipe"} }
func (p *pipe) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "standard input", Net: "pipe"} }
func (p *pipe) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (p *pipe) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (p *pipe) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
