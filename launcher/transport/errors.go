package transport

import (
	"errors"
	"fmt"
)

// ExitError is the end of a command that did not exit with 0.
type ExitError struct {
	Status int    // exit status; 128 + number of the signal, or 128 if the number is not known
	Signal string // name, without SIG, of the signal that ended the command; empty: none
}

func (e *ExitError) Error() string {
	if e.Signal != "" {
		return "ended by signal " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// ExitStatus returns the exit status of a command that ended by itself, else -1. A command on
// a host exits with 127 if a program was not found.
func ExitStatus(err error) int {
	var e *ExitError
	if errors.As(err, &e) {
		return e.Status
	}
	return -1
}

// Killed reports whether a signal ended the command.
func Killed(err error) bool {
	var e *ExitError
	return errors.As(err, &e) && e.Signal != ""
}

// LostError says that the network, the host or Close ended the connection. It is not
// known whether a command under way still runs. The caller may dial again.
type LostError struct {
	Host  string
	By    string // what carried the connection, such as "ssh"; empty: Cause says it
	Cause error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("host %s: connection lost: %v", e.Host, e.Cause)
}

func (e *LostError) Unwrap() error { return e.Cause }

// WhyLost returns why the connection is gone; "" if err does not say that it is.
func WhyLost(err error) string {
	var e *LostError
	switch {
	case !errors.As(err, &e):
		return ""
	case e.By == "":
		return e.Cause.Error()
	}
	return e.By + ": " + e.Cause.Error()
}

// IsLost reports whether err says that there was a connection, which is gone.
func IsLost(err error) bool { return WhyLost(err) != "" }

// What RefusedBy returns.
const (
	HostKey = "host key" // this machine does not accept that the host is who it says
	Login   = "login"    // the host does not accept the user
)

// RefusedBy returns by which check a Dialer's connection was refused and what to do about it;
// "" if the host was not reached.
func RefusedBy(err error) (check, cure string) {
	var e interface{ RefusedBy() (check, cure string) }
	if errors.As(err, &e) {
		return e.RefusedBy()
	}
	return "", ""
}

// Reworded returns err with another text.
func Reworded(err error, text string) error { return &reworded{err, text} }

type reworded struct {
	error
	text string
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.error }
