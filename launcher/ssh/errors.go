package ssh

import (
	"fmt"
	"strings"
)

// ExitError is the end of a command that ran and did not exit with 0.
type ExitError struct {
	Status int    // exit status; 128 + number where a signal ended it and the number is known
	Signal string // name without SIG of the signal that ended it, else empty
}

func (e *ExitError) Error() string {
	if e.Signal != "" {
		return "ended by signal " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// ExitStatus returns the status as a shell reports it.
func (e *ExitError) ExitStatus() int { return e.Status }

// LostError says that the connection to a host is gone, by the network, the
// host or Close. Whether a command outstanding on it still runs is not known.
// The caller may dial again.
type LostError struct {
	Host  string
	Cause error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("host %s: connection lost: %v", e.Host, e.Cause)
}

func (e *LostError) Unwrap() error { return e.Cause }

// HostKeyError refuses a host for the key it showed.
type HostKeyError struct {
	Host        string   // as in the resource file, or the hop on the way to it
	Address     string   // as written in known_hosts
	KeyType     string   // such as ssh-ed25519
	Fingerprint string   // SHA256:...
	Recorded    []string // "file:line: type" of the differing keys on record; none: the host is unknown
	Revoked     bool     // the key is marked @revoked

	scan string // the command that fetches the key
}

// Changed tells a key that contradicts the record from one without any.
func (e *HostKeyError) Changed() bool { return len(e.Recorded) > 0 || e.Revoked }

func (e *HostKeyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "host %s: host key refused: it shows %s key %s", e.Host, e.KeyType, e.Fingerprint)
	switch {
	case e.Revoked:
		fmt.Fprintf(&b, ", which is revoked at %s", strings.Join(e.Recorded, ", "))
	case e.Changed():
		fmt.Fprintf(&b, ", but another key is recorded for it at %s", strings.Join(e.Recorded, ", "))
	default:
		fmt.Fprintf(&b, " and none is known for %s", e.Address)
	}
	return b.String()
}

// Hint says how to accept an unknown key. For a key that changed there is no
// hint: that decision needs more than a copied command.
func (e *HostKeyError) Hint() string {
	if e.Changed() {
		return ""
	}
	hint := "compare the fingerprint with the host's own, then run again with --accept-new-host-keys"
	if e.scan != "" {
		hint += ", or: " + e.scan
	}
	return hint
}

// hintedError carries advice for the user beside the cause.
type hintedError struct {
	error
	hint string
}

func (e *hintedError) Hint() string  { return e.hint }
func (e *hintedError) Unwrap() error { return e.error }
