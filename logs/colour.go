package logs

import (
	"hash/fnv"
	"strconv"
)

// UseColour decides from --color (always, never, auto or empty) and the
// environment whether an output is coloured. A mode given by hand comes before
// NO_COLOR; an unknown mode counts as auto.
func UseColour(mode string, terminal bool, getenv func(string) string) bool {
	switch mode {
	case "always":
		return true
	case "never":
		return false
	}
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// palette holds indexes of the 256-colour cube that stand out, at 3:1 or more,
// on white and on black. No red: that marks stderr.
var palette = [...]uint8{31, 64, 97, 130, 30, 133, 67, 100, 62, 65, 136, 99, 28, 103, 27, 102}

// colourOf returns the colour of a task: always the same for one name.
func colourOf(task string) uint8 {
	h := fnv.New32a()
	h.Write([]byte(task)) // a hash never fails
	return palette[h.Sum32()%uint32(len(palette))]
}

const (
	sgrReset = "\x1b[0m"
	sgrFaint = "\x1b[2m"
	sgrRed   = "\x1b[31m"
)

// sgrColour appends the sequence that begins a prefix. It first ends whatever
// a task left behind.
func sgrColour(dst []byte, colour uint8, faint bool) []byte {
	dst = append(dst, "\x1b[0;"...)
	if faint {
		dst = append(dst, "2;"...)
	}
	dst = append(dst, "38;5;"...)
	dst = strconv.AppendUint(dst, uint64(colour), 10)
	return append(dst, 'm')
}
