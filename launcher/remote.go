package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strconv"
	"sync"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/ssh"
)

// transport is how one host is reached: over SSH, to a server of the host's
// own or to one of an embedded cluster. Its methods may be called from many
// goroutines. An error that is an *ssh.LostError says that the connection is
// gone; every other concerns the one call.
type transport interface {
	Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error
	Copy(ctx context.Context, r io.Reader, size int64, path string, mode fs.FileMode) error
	Close() error
}

// remote is one host of a launch. It is a transport itself: it dials when
// there is no connection, so that work goes on after one was lost.
type remote struct {
	host     hostfile.Host
	dial     func(ctx context.Context) (transport, error)
	embedded bool
	facts    envsync.Facts
	report   gpuprobe.Report

	mu   sync.Mutex
	conn transport
}

func sshDialler(cfg ssh.Config) func(context.Context) (transport, error) {
	return func(ctx context.Context) (transport, error) {
		c, err := ssh.Dial(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// connect returns the present connection, or a new one. Others wait while one
// dials.
func (r *remote) connect(ctx context.Context) (transport, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		return r.conn, nil
	}
	conn, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	r.conn = conn
	return conn, nil
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
	return err
}

// Copy writes a file on the host.
func (r *remote) Copy(ctx context.Context, from io.Reader, size int64, path string, mode fs.FileMode) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	err = conn.Copy(ctx, from, size, path, mode)
	r.drop(conn, err)
	return err
}

// Close ends the connection, if there is one.
func (r *remote) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	err := r.conn.Close()
	r.conn = nil
	return err
}

// inspect learns what the host is.
func (r *remote) inspect(ctx context.Context) error {
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

var unsafeInFolder = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// folder is the name of the host's folder under ~/.plx/jobs/<job>/.
func (r *remote) folder() string {
	name := unsafeInFolder.ReplaceAllString(r.host.Name, "_")
	if r.host.Port != 0 {
		name += "_" + strconv.Itoa(r.host.Port)
	}
	return name
}
