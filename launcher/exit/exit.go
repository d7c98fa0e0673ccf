// Package exit decides with which status plx exits after an error, and which
// hint it prints.
//
//	err := exit.Mistake(errors.New("no program was named"), "plx launch ./train")
//	fmt.Fprintln(os.Stderr, err, exit.Hint(err))
//	os.Exit(exit.Code(err)) // 2
//
// It neither prints nor ends the process: package main does.
package exit

import (
	"errors"
	"fmt"
)

// Exit statuses that no program chose. Package jobstate chooses the status of a job.
const (
	CodeUsage      = 2   // the user's mistake: flags, or the resource file
	CodeTimeout    = 124 // time ran out, as timeout(1) reports it
	CodePlx        = 125 // plx, not the program, is at fault
	CodeNotRunning = 126 // the program cannot be executed, as in a shell
	CodeNotFound   = 127 // there is no such program, as in a shell
)

// hinted is an error with advice.
type hinted struct {
	error
	hint string // what the user can do
}

func (h *hinted) Unwrap() error { return h.error }
func (h *hinted) Hint() string  { return h.hint }

// WithHint adds advice to err, unless the hint is empty.
func WithHint(err error, hint string) error {
	if hint == "" {
		return err
	}
	return &hinted{err, hint}
}

// coded is an error with an exit status of its own.
type coded struct {
	error
	code int // plx's exit status
}

func (c *coded) Unwrap() error { return c.error }

// WithCode gives err an exit status.
func WithCode(err error, code int) error { return &coded{err, code} }

// Mistake marks err as the user's own: [Code] returns CodeUsage. It needs a hint, which
// fmt.Sprintf makes of a format and its arguments. A hint that err already carries is
// preferred, because it is about the very text.
func Mistake(err error, hint string, args ...any) error {
	if Hint(err) == "" {
		err = WithHint(err, fmt.Sprintf(hint, args...))
	}
	return WithCode(err, CodeUsage)
}

// Code returns plx's exit status for err: 0 for nil, the status of [WithCode] or
// [Mistake], and CodePlx for every other error.
func Code(err error) int {
	var c *coded
	switch {
	case err == nil:
		return 0
	case errors.As(err, &c):
		return c.code
	}
	return CodePlx
}

// Hint returns the advice that err or an error below it carries, or "".
func Hint(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}
