package exit

import (
	"errors"
	"fmt"
	"testing"
)

var errDisk = errors.New("the disk is full")

// advised is an error of another package that has advice, as package ssh has one.
type advised struct{ error }

func (advised) Hint() string { return "remove old jobs" }

// Code and Hint look through all wrapping errors; the outermost status or hint
// wins.
func TestCodeAndHint(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code int
		hint string
	}{
		"success":                      {nil, 0, ""},
		"any error":                    {errDisk, 125, ""},
		"advice":                       {fmt.Errorf("host a: %w", WithHint(errDisk, "df -h")), 125, "df -h"},
		"empty advice":                 {WithHint(WithHint(errDisk, "df -h"), ""), 125, "df -h"},
		"later advice":                 {WithHint(fmt.Errorf("host a: %w", WithHint(errDisk, "df -h")), "df -i"), 125, "df -i"},
		"advice of another type":       {fmt.Errorf("host a: %w", advised{errDisk}), 125, "remove old jobs"},
		"status":                       {fmt.Errorf("host a: %w", WithCode(errDisk, CodeTimeout)), 124, ""},
		"later status":                 {WithCode(fmt.Errorf("host a: %w", WithCode(errDisk, 3)), 4), 4, ""},
		"status of one of several":     {errors.Join(errDisk, WithCode(errDisk, CodeNotFound)), 127, ""},
		"advice of one of several":     {errors.Join(errDisk, WithHint(errDisk, "df -h")), 125, "df -h"},
		"status around advice":         {WithCode(WithHint(errDisk, "df -h"), CodeNotRunning), 126, "df -h"},
		"advice around a status":       {WithHint(WithCode(errDisk, CodeNotRunning), "df -h"), 126, "df -h"},
		"mistake":                      {fmt.Errorf("line 3: %w", Mistake(errDisk, "plx prune")), 2, "plx prune"},
		"mistake with values":          {Mistake(errDisk, "plx prune %s, %d %%", "gpu03", 90), 2, "plx prune gpu03, 90 %"},
		"mistake with advice below it": {Mistake(fmt.Errorf("line 3: %w", WithHint(errDisk, "df -h")), "plx prune"), 2, "df -h"},
		"mistake with a status below":  {Mistake(WithCode(errDisk, CodeTimeout), "plx prune"), 2, "plx prune"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, hint := Code(c.err), Hint(c.err); code != c.code || hint != c.hint {
				t.Errorf("status %d, hint %q; want %d, %q", code, hint, c.code, c.hint)
			}
		})
	}
}

// Adding an exit status or a hint changes neither the text of an error nor the
// result of errors.Is.
func TestErrorStaysTheSame(t *testing.T) {
	for name, err := range map[string]error{
		"WithHint": WithHint(errDisk, "df -h"),
		"WithCode": WithCode(errDisk, 3),
		"Mistake":  Mistake(errDisk, "plx prune"),
	} {
		if err.Error() != errDisk.Error() || !errors.Is(err, errDisk) {
			t.Errorf("%s: got %q, which wraps the cause: %v", name, err, errors.Is(err, errDisk))
		}
	}
}
