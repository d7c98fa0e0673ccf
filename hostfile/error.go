package hostfile

import (
	"errors"
	"fmt"
	"io/fs"
)

// mistake is an error in the user's text.
type mistake struct {
	text string
	hint string // how to write it instead; "" without
}

func (m *mistake) Error() string { return m.text }

// Hint returns one line of advice, "" when there is none.
func (m *mistake) Hint() string { return m.hint }

func wrong(format string, args ...any) error {
	return &mistake{text: fmt.Sprintf(format, args...)}
}

func hinted(hint, format string, args ...any) error {
	return &mistake{text: fmt.Sprintf(format, args...), hint: hint}
}

// unreadable is the error of a resource file that cannot be opened or read.
type unreadable struct {
	path  string
	cause error
}

func (u *unreadable) Error() string {
	cause := u.cause
	// The operating system's error names the path once more.
	var pathError *fs.PathError
	if errors.As(cause, &pathError) {
		cause = pathError.Err
	}
	return fmt.Sprintf("read resource file %s: %v", u.path, cause)
}

func (u *unreadable) Unwrap() error { return u.cause }

// Hint returns one line of advice.
func (u *unreadable) Hint() string {
	if errors.Is(u.cause, fs.ErrNotExist) {
		return "check the path; to name hosts without a file, give --host LINE"
	}
	return ""
}

// quoted returns text for an error message: in quotes, with visible control
// sequences, and cut after 80 bytes.
func quoted(text string) string {
	const most = 80
	if len(text) > most {
		return fmt.Sprintf("%q...", text[:most])
	}
	return fmt.Sprintf("%q", text)
}

// at puts file and line before err.
func at(pos Position, err error) error { return fmt.Errorf("%s: %w", pos, err) }
