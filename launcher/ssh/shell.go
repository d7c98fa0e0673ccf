package ssh

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// maxCommand is the longest encoded command, in bytes. Linux takes 128 KiB in
// one argument, and the login shell gets the whole line as one.
const maxCommand = 64 << 10

// Quote returns arg as one word of a POSIX shell: in single quotes, where
// nothing is special but the quote itself. NUL cannot be in an argument; Quote
// leaves it to the shell to refuse.
func Quote(arg string) string {
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// newSentinel returns a word that no start-up file prints.
func newSentinel() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails since Go 1.24
	return "plx-" + hex.EncodeToString(random[:])
}

// wrap returns the line for the user's login shell, whichever that is, that
// prints sentinel on both streams and then runs script in /bin/sh.
//
// The shells agree on single quotes only while there is no quote, backslash
// pair, exclamation mark or newline between them. So the script travels with
// these (and all that is not printable ASCII) as \0ooo, for printf's %b.
func wrap(script, sentinel string) (string, error) {
	if strings.IndexByte(script, 0) >= 0 {
		return "", errors.New("the command has a NUL byte")
	}
	const start = `printf "%%s\n" %[1]s; printf "%%s\n" %[1]s >&2; eval "shift; $(printf %%b "$1")"`
	line := "exec /bin/sh -c '" + fmt.Sprintf(start, sentinel) + "' plx '" + encode(script) + "'"
	if len(line) > maxCommand {
		return "", fmt.Errorf("the command is too long: %d bytes as sent, %d at most", len(line), maxCommand)
	}
	return line, nil
}

func encode(script string) string {
	var b strings.Builder
	b.Grow(len(script) + len(script)/4)
	for i := range len(script) {
		c := script[i]
		if c < ' ' || c > '~' || c == '\'' || c == '\\' || c == '!' {
			fmt.Fprintf(&b, `\0%03o`, c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
