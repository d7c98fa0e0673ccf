package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/ssh"
)

// transport is how one host is reached: over SSH, to a server of the host's
// own or to one of an embedded cluster. Its methods may be called from many
// goroutines, and their errors may name the host. One that is an *ssh.LostError
// says that the connection is gone; every other concerns the one call.
type transport interface {
	Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error
	Copy(ctx context.Context, r io.Reader, size int64, path string, mode fs.FileMode) error
	Close() error
}

// dialler reaches one host anew.
type dialler func(ctx context.Context) (transport, error)

// remote is one host of a launch. It is a transport itself: it dials when
// there is no connection, so that work goes on after one was lost.
type remote struct {
	host     hostfile.Host
	dial     dialler
	embedded bool
	facts    envsync.Facts
	report   gpuprobe.Report
	dialling chan struct{} // holds the one that dials

	mu     sync.Mutex
	conn   transport
	closed bool
}

func newRemote(host hostfile.Host, dial dialler, embedded bool) *remote {
	return &remote{host: host, dial: dial, embedded: embedded, dialling: make(chan struct{}, 1)}
}

// connect returns the present connection, or a new one. Others wait while one
// dials, as long as their ctx lets them.
func (r *remote) connect(ctx context.Context) (transport, error) {
	if conn, err := r.present(); conn != nil || err != nil {
		return conn, err
	}
	select {
	case r.dialling <- struct{}{}:
		defer func() { <-r.dialling }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if conn, err := r.present(); conn != nil || err != nil {
		return conn, err
	}
	conn, err := r.dial(ctx)
	if err != nil {
		return nil, r.bare(err)
	}
	return conn, r.keep(conn)
}

// within gives work on the host its time, which begins when there is a connection:
// the host may have had to wait for its turn.
func (r *remote) within(ctx context.Context, limit time.Duration, work func(context.Context) error) error {
	if _, err := r.connect(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return work(ctx)
}

// named puts the host's name before an error.
func (r *remote) named(err error) error { return fmt.Errorf("host %s: %w", r.host.Name, err) }

// bare takes the host's name off an error that has it, as those of transports do:
// who tells of it names the host, once.
func (r *remote) bare(err error) error {
	if err == nil {
		return nil
	}
	words, named := strings.CutPrefix(err.Error(), "host "+r.host.Name+": ")
	if !named {
		return err
	}
	return &retold{err, words}
}

// present returns the connection, nil without one.
func (r *remote) present() (transport, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, net.ErrClosed
	}
	return r.conn, nil
}

// keep makes conn the present connection, unless Close came first.
func (r *remote) keep(conn transport) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errors.Join(net.ErrClosed, conn.Close())
	}
	r.conn = conn
	return nil
}

// drop forgets a connection that was lost.
func (r *remote) drop(conn transport, err error) {
	var lost *ssh.LostError
	if !errors.As(err, &lost) {
		return
	}
	r.mu.Lock()
	if r.conn == conn {
		r.conn = nil
	}
	r.mu.Unlock()
	conn.Close() // it is lost: nothing more can be learned from closing it
}

// Run runs a POSIX shell script on the host.
func (r *remote) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	err = conn.Run(ctx, command, stdin, stdout, stderr)
	r.drop(conn, err)
	return r.bare(err)
}

// Copy writes a file on the host.
func (r *remote) Copy(ctx context.Context, from io.Reader, size int64, path string, mode fs.FileMode) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	err = conn.Copy(ctx, from, size, path, mode)
	r.drop(conn, err)
	return r.bare(err)
}

// Close ends the connection, if there is one. It does not wait for one that is
// being dialled.
func (r *remote) Close() error {
	r.mu.Lock()
	conn := r.conn
	r.conn, r.closed = nil, true
	r.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// inspect learns what the host is. Its first use of the host is to connect,
// which is told apart from what may fail later.
func (r *remote) inspect(ctx context.Context) error {
	if _, err := r.connect(ctx); err != nil {
		return err
	}
	facts, err := envsync.Inspect(ctx, r)
	if err != nil {
		return err
	}
	if facts.OS != "linux" {
		return fmt.Errorf("it runs %s/%s, a host must run linux", facts.OS, facts.Arch)
	}
	r.facts = facts
	return nil
}

// dataAddr is where tasks of other hosts dial this one.
func (r *remote) dataAddr() (string, error) {
	switch {
	case r.host.DataAddr != "":
		return r.host.DataAddr, nil
	case r.facts.ServerAddr != "":
		return r.facts.ServerAddr, nil
	}
	return "", errors.New("its address is not known, for it sets no SSH_CONNECTION: put addr=IP behind it in the resource file")
}

// label is the host as the user tells it apart from others: with its port,
// where the resource file gives one.
func (r *remote) label() string {
	if r.host.Port == 0 {
		return r.host.Name
	}
	return net.JoinHostPort(r.host.Name, strconv.Itoa(r.host.Port))
}

var unsafeInFolder = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// folder is the name of the host's folder under ~/.plx/jobs/<job>/.
func (r *remote) folder() string {
	name := unsafeInFolder.ReplaceAllString(r.host.Name, "_")
	if r.host.Port != 0 {
		name += "_" + strconv.Itoa(r.host.Port)
	}
	return name
}
