package sshserver

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// stream is one direction of a pipe. Unlike io.Pipe, its Write does not wait
// for a Read, because both sides of SSH begin with a write.
type stream struct {
	written chan []byte
	left    []byte // unread rest of the last element received from written
	closed  chan struct{}
	once    sync.Once
}

func newStream() *stream {
	return &stream{written: make(chan []byte, 1000), closed: make(chan struct{})}
}

func (s *stream) Write(b []byte) (int, error) {
	select {
	case <-s.closed:
		return 0, io.ErrClosedPipe
	case s.written <- bytes.Clone(b):
		return len(b), nil
	}
}

func (s *stream) Read(b []byte) (int, error) {
	for len(s.left) == 0 {
		select {
		case <-s.closed:
			return 0, io.EOF
		case s.left = <-s.written:
		}
	}
	n := copy(b, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *stream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// servedPipe is the client's end of a pipe that ServePipe serves.
type servedPipe struct {
	pipe
	key   gossh.PublicKey // server's public key from the first line
	ended chan error      // the result of ServePipe
}

// servePipe starts ServePipe and reads its first line, with the server's key.
func servePipe(t *testing.T) *servedPipe {
	t.Helper()
	in, out := newStream(), newStream()
	p := &servedPipe{pipe: pipe{in: out, out: in}, ended: make(chan error, 1)}
	go func() { p.ended <- ServePipe(in, out, "word") }()
	var line []byte
	for one := make([]byte, 1); !bytes.HasSuffix(line, []byte("\n")); line = append(line, one...) {
		if _, err := p.Read(one); err != nil {
			t.Fatal(err)
		}
	}
	word, key, _ := strings.Cut(string(line), " ")
	var err error
	if p.key, _, _, _, err = gossh.ParseAuthorizedKey([]byte(key)); err != nil || word != "word" {
		t.Fatalf("first line %q: %v", line, err)
	}
	return p
}

// login connects without offering a key. It accepts only the server key of the
// first line.
func (p *servedPipe) login(t *testing.T) *gossh.Client {
	t.Helper()
	conn, channels, requests, err := gossh.NewClientConn(p, "pod", &gossh.ClientConfig{HostKeyCallback: gossh.FixedHostKey(p.key)})
	if err != nil {
		t.Fatal(err)
	}
	return gossh.NewClient(conn, channels, requests)
}

// ServePipe serves a client without a key until the client closes the pipe.
// Commands get no SSH_CONNECTION, since no network is involved.
func TestServePipe(t *testing.T) {
	t.Setenv("SSH_CONNECTION", "")
	p := servePipe(t)
	client := p.login(t)
	if out, err := open(t, client).Output(`echo "fine$SSH_CONNECTION"`); err != nil || string(out) != "fine\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
}

// ServePipe gives up a client that does not begin the handshake, although a
// pipe has no deadlines.
func TestServePipeTimesOutWithoutHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := servePipe(t)
		defer p.Close()
		began := time.Now()
		_, _ = io.Copy(io.Discard, &p.pipe) // wait until the server closes the pipe
		if err := <-p.ended; err != nil || time.Since(began) != handshakeTimeout {
			t.Errorf("got %v after %v, want the end after %v", err, time.Since(began), handshakeTimeout)
		}
	})
}

// ServePipe keeps serving a client that sends keepalive requests. It gives up
// a client that sends nothing for a minute, at the latest after two minutes.
func TestServePipeStopsAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := servePipe(t)
		client := p.login(t)
		defer client.Close()
		for range 5 { // more often than the server checks
			select {
			case err := <-p.ended:
				t.Fatalf("ended with %v while the client asks", err)
			case <-time.After(silenceLimit - time.Second):
			}
			if _, _, err := client.SendRequest("keepalive@openssh.com", true, nil); err != nil {
				t.Fatal(err)
			}
		}
		last := time.Now()
		err := <-p.ended
		if silent := time.Since(last); err == nil || !strings.Contains(err.Error(), "no byte arrived") || silent < silenceLimit || silent > 2*silenceLimit {
			t.Errorf("ended with %v after %v of silence", err, silent)
		}
	})
}
