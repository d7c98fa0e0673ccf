// Package plural formats a number together with a noun, for messages.
package plural

import (
	"fmt"
	"strings"
)

// Count formats n with the noun in singular or plural, such as "1 host", "3
// hosts" or "2 processes".
func Count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
