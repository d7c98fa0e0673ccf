// Package hints makes mistakes without hints, so that their test can see that they are
// found.
package hints

import (
	"errors"

	"github.com/plx-run/plx/launcher/exit"
)

var errWrong = errors.New("wrong")

// Wrong returns mistakes: the first two are as they should be.
func Wrong(hint string) []error {
	return []error{
		exit.Mistake(errWrong, "leave it out"),
		exit.Mistake(errWrong, "%s? plx help lists them", hint),
		exit.Mistake(errWrong, ""),
		exit.Mistake(errWrong, hint),
		exit.Mistake(errWrong, "%s", hint),
		exit.WithCode(errWrong, 2),
		exit.WithCode(errWrong, exit.CodeUsage),
	}
}
