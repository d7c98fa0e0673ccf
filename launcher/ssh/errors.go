package ssh

import (
	"fmt"
	"strings"
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

// ExitStatus returns the status as a shell does.
func (e *ExitError) ExitStatus() int { return e.Status }

// LostError says that the network, the host or Close ended the connection. It is not
// known whether a command under way still runs. The caller may dial again.
type LostError struct {
	Host  string
	Cause error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("host %s: connection lost: %v", e.Host, e.Cause)
}

func (e *LostError) Unwrap() error { return e.Cause }

// ConnectionLost says why the connection is gone, for callers that do not know which
// transport they use.
func (e *LostError) ConnectionLost() string { return "ssh: " + e.Cause.Error() }

// HostKeyError says that the host showed a key which is not accepted.
type HostKeyError struct {
	Host        string   // as in the resource file, or the hop on the way to it
	Address     string   // as written in known_hosts
	KeyType     string   // such as ssh-ed25519
	Fingerprint string   // SHA256:...
	Recorded    []string // "file:line: type" of the other keys on record; empty: the host is unknown
	Revoked     bool     // the key is marked @revoked

	scan string // the command that fetches the key
}

// Changed reports whether the key contradicts the record. False: there is no record.
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

// Hint says how to accept an unknown key. A changed key has no hint: to accept it needs
// more than a copied command.
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
