package transport

import (
	"errors"
	"fmt"
)

// ExitError reports a command on a host that exited with a status other than 0
// or was killed by a signal.
type ExitError struct {
	Status int    // exit status of the command; after a signal 128 + its number, or 128 if the number is unknown
	Signal string // signal that killed the command, without SIG; empty: the command exited by itself
}

func (e *ExitError) Error() string {
	if e.Signal != "" {
		return "ended by signal " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// ExitStatus returns the exit status in an [ExitError], or -1 if err contains
// none. As in a shell, 127 means that a program was not found.
func ExitStatus(err error) int {
	var e *ExitError
	if errors.As(err, &e) {
		return e.Status
	}
	return -1
}

// Killed reports whether err is an [ExitError] of a command that a signal
// killed.
func Killed(err error) bool {
	var e *ExitError
	return errors.As(err, &e) && e.Signal != ""
}

// LostError reports that an established connection has ended, because of the
// network, the host or a call of Close. A command that was running may still
// run on the host. The caller may dial again.
type LostError struct {
	Host  string
	By    string // program that carried the connection, such as "ssh"; empty if Cause names it
	Cause error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("host %s: connection lost: %v", e.Host, e.Cause)
}

func (e *LostError) Unwrap() error { return e.Cause }

// LossReason returns why the connection was lost, or "" if err contains no
// [LostError].
func LossReason(err error) string {
	var e *LostError
	switch {
	case !errors.As(err, &e):
		return ""
	case e.By == "":
		return e.Cause.Error()
	}
	return e.By + ": " + e.Cause.Error()
}

// IsLost reports whether err contains a [LostError], that is, an established
// connection was lost.
func IsLost(err error) bool { return LossReason(err) != "" }

// Values that RefusedBy returns as check.
const (
	HostKey = "host key" // plx refused the connection, since the host's key is unknown or has changed
	Login   = "login"    // the host refused the user's login
)

// RefusedBy returns which check refused a connection, [HostKey] or [Login],
// and what the user can do about it. It returns "" if err is another error,
// such as an unreachable host.
func RefusedBy(err error) (check, cure string) {
	var e interface{ RefusedBy() (check, cure string) }
	if errors.As(err, &e) {
		return e.RefusedBy()
	}
	return "", ""
}

// WithMessage returns an error that wraps err but has the given text as its
// message.
func WithMessage(err error, text string) error { return &reworded{err, text} }

type reworded struct {
	error
	text string
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.error }
