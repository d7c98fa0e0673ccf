package hosts

import (
	"context"
	"errors"
	"io"
	"io/fs"
)

// Transport is a connection to one host. Its methods may be called from several
// goroutines at once. Their errors may begin with the host's name. The error of a
// command that ended with another status than 0 has a method ExitStatus() int.
//
// An error with a method ConnectionLost() string says that the connection is gone,
// and why. Every other error concerns the one call. Package transporttest tests
// what this package relies on.
type Transport interface {
	// Run runs a POSIX shell script in the home folder.
	Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error
	// Copy writes size bytes to path, whole or not at all. A relative path starts
	// at the home folder.
	Copy(ctx context.Context, r io.Reader, size int64, path string, mode fs.FileMode) error
	// Close ends the connection and the calls under way. It is idempotent.
	Close() error
}

// Dialer makes a new connection to one host.
type Dialer func(ctx context.Context) (Transport, error)

// lost returns why the connection is gone. False: err does not say that it is.
func lost(err error) (why string, is bool) {
	var l interface{ ConnectionLost() string }
	if !errors.As(err, &l) {
		return "", false
	}
	return l.ConnectionLost(), true
}

// IsLost reports whether err says that there was a connection, which is gone.
func IsLost(err error) bool {
	_, is := lost(err)
	return is
}

// ExitStatus returns the exit status of a command that ended by itself, else -1.
func ExitStatus(err error) int {
	var e interface{ ExitStatus() int }
	if errors.As(err, &e) {
		return e.ExitStatus()
	}
	return -1
}

// reworded is an error with another text.
type reworded struct {
	error
	text string
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.error }
