package launcher

import "errors"

// Exit statuses of plx that no task chose. main maps errors to them with
// [Code]; the coordinator chooses the others.
const (
	CodeUsage = 2   // wrong use: flags, a resource file that is missing or wrong
	CodePlx   = 125 // plx could not do its part
)

// mistake is the user's: exit status 2.
type mistake struct {
	error
	hint string
}

func (m *mistake) Unwrap() error { return m.error }
func (m *mistake) Hint() string  { return m.hint }

// Mistake marks err as the user's own, with a hint that may be empty.
func Mistake(err error, hint string) error { return &mistake{error: err, hint: hint} }

// hinted advises what to do.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }
func (h *hinted) Hint() string  { return h.hint }

// retold is an error in other words.
type retold struct {
	error
	words string
}

func (r *retold) Error() string { return r.words }
func (r *retold) Unwrap() error { return r.error }

// coded carries an exit status of its own.
type coded struct {
	error
	code int
}

func (c *coded) Unwrap() error { return c.error }

// Code is plx's exit status for err: 0 for nil, 2 for a user's mistake, 125
// for all that plx could not do.
func Code(err error) int {
	var m *mistake
	var c *coded
	switch {
	case err == nil:
		return 0
	case errors.As(err, &c):
		return c.code
	case errors.As(err, &m):
		return CodeUsage
	}
	return CodePlx
}

// Hint returns what err advises, or "".
func Hint(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}
