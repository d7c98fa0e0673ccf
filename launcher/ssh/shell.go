package ssh

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// maxCommand bounds the encoded command, in bytes. The login shell gets the command as one
// argument, and Linux allows 128 KiB for an argument.
const maxCommand = 64 << 10

// Quote returns arg as one word of a POSIX shell, in single quotes. It does not refuse
// NUL: the shell does.
func Quote(arg string) string {
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// newSentinel returns a random word, which no start-up file prints.
func newSentinel() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails since Go 1.24
	return "plx-" + hex.EncodeToString(random[:])
}

// wrap returns a line for the user's login shell. It prints sentinel on both streams and
// then runs script in /bin/sh.
//
// Login shells treat single quotes alike only without a quote, a backslash pair, an
// exclamation mark or a newline between them. So wrap encodes these, and all that is not
// printable ASCII, as \0ooo for printf's %b.
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
