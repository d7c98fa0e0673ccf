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

// silenceLimit is the time without any byte after which ServePipe gives up. The client
// sends a keepalive request every 5 s.
const silenceLimit = time.Minute

// ServePipe runs an SSH server on in and out. It returns when in ends, or when
// no byte has arrived for a minute. It first prints word and the server's
// public key on one line. The client needs no key to log in, because only the
// user's processes can access the pipe.
func ServePipe(in io.Reader, out io.Writer, word string) error {
	key, err := ssh.GenerateKey()
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
	tick := time.NewTicker(silenceLimit)
	defer tick.Stop()
	for received := int64(-1); ; {
		select {
		case <-ended:
			return nil
		case <-tick.C:
			now := conn.received.Load()
			if now == received {
				return fmt.Errorf("no byte arrived from the launcher for %v", silenceLimit)
			}
			received = now
		}
	}
}

// pipe is a net.Conn that reads from in and writes to out.
type pipe struct {
	in       io.Reader
	out      io.Writer
	received atomic.Int64 // number of bytes read so far
}

func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.in.Read(b)
	p.received.Add(int64(n))
	return n, err
}

func (p *pipe) Write(b []byte) (int, error) { return p.out.Write(b) }

// Close closes in and out if they are io.Closers.
func (p *pipe) Close() error {
	for _, end := range []any{p.in, p.out} {
		if c, ok := end.(io.Closer); ok {
			c.Close() // an error of Close is ignored: the client notices the end of the connection
		}
	}
	return nil
}

func (p *pipe) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "standard output", Net: "pipe"} }
func (p *pipe) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "standard input", Net: "pipe"} }
func (p *pipe) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (p *pipe) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (p *pipe) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
