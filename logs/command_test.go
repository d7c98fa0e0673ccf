package logs

import (
	"reflect"
	"testing"
)

// Sequences that move the cursor or erase text are commands; colours and other
// sequences are not.
func TestCommandOf(t *testing.T) {
	for text, want := range map[string]command{
		"\r": {name: '\r', size: 1}, "\b\b": {name: '\b', size: 1}, "\x1b7": {name: '7', size: 2}, "\x1bMx": {name: reverseIndex, size: 2},
		"\x1b[A":    {name: 'A', args: []int{-1}, size: 3},
		"\x1b[12Fx": {name: 'F', args: []int{12}, size: 5},
		"\x1b[2;7H": {name: 'H', args: []int{2, 7}, size: 6},
		"\x1b[?25l": {name: 'l', args: []int{25}, mode: true, size: 6},
		"\x1b[31m":  {}, "\x1b[M": {}, "\x1b]0;t\a": {}, "\x1b(B": {}, "\x1b[>4;2m": {}, "\x1b[?4m": {}, "\x1b[1 q": {},
		"\x1b": {size: -1}, "\x1b[": {size: -1}, "\x1b[2": {size: -1},
		"\x1b[99999999999999999999A":                        {name: 'A', args: []int{-1}, size: 23},
		"\x1b[1111111111111111111111111111111111111111111A": {},
	} {
		got := commandOf([]byte(text))
		if want.size <= 0 {
			got = command{size: got.size}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	for text, want := range map[string]int{"a\x1b[Ab\x1b[2Fc\x1b[2K": 5, "\x1b[B\r": -1, "\x1b[?25l": -1, "\x1bM": 0} {
		if got := lastUp([]byte(text)); got != want {
			t.Errorf("%q: the last movement up is at %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]bool{"a\r": true, "\b": true, "\x1b[31mred\x1b[K": true, "\x1b[31mred\x1b[0m": false, "\x1b[31mred\x1b": true} {
		if got := hasCommands([]byte(text)); got != want {
			t.Errorf("%q has commands: %v", text, got)
		}
	}
}
