// Package exit decides which exit status plx returns for an error, and which
// hint it prints.
//
//	err := exit.Mistake(errors.New("no program was named"), "plx launch ./train")
//	fmt.Fprintln(os.Stderr, err, exit.Hint(err))
//	os.Exit(exit.Code(err)) // 2
//
// The package neither prints nor exits; package main does.
package exit

import (
	"errors"
	"fmt"
)

// Exit statuses of plx itself, as opposed to those of the launched program.
// For a job, package jobstate chooses the exit status.
const (
	CodeUsage      = 2   // a mistake of the user, in the flags or the resource file
	CodeTimeout    = 124 // a time limit has expired; timeout(1) uses the same status
	CodePlx        = 125 // plx, not the launched program, has failed
	CodeNotRunning = 126 // the program cannot be executed; shells use the same status
	CodeNotFound   = 127 // the program does not exist; shells use the same status
)

// hinted is an error with a hint for the user.
type hinted struct {
	error
	hint string // what the user can do about the error
}

func (h *hinted) Unwrap() error { return h.error }
func (h *hinted) Hint() string  { return h.hint }

// WithHint returns err with a hint for the user. If the hint is empty, it
// returns err unchanged.
func WithHint(err error, hint string) error {
	if hint == "" {
		return err
	}
	return &hinted{err, hint}
}

// coded is an error with an exit status for plx.
type coded struct {
	error
	code int // exit status of plx
}

func (c *coded) Unwrap() error { return c.error }

// WithCode returns err with an exit status, which Code then returns.
func WithCode(err error, code int) error { return &coded{err, code} }

// Mistake marks err as a mistake of the user, for which [Code] returns
// CodeUsage. The hint is formatted with args as by fmt.Sprintf. If err already
// has a hint, Mistake keeps the hint of err, because it is more specific.
func Mistake(err error, hint string, args ...any) error {
	if Hint(err) == "" {
		err = WithHint(err, fmt.Sprintf(hint, args...))
	}
	return WithCode(err, CodeUsage)
}

// Code returns plx's exit status for err: 0 for nil, the status set by
// [WithCode] or [Mistake], and CodePlx for every other error.
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

// Hint returns the hint of err or of an error that err wraps, or "" if there
// is none.
func Hint(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}
