package collective

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"slices"
)

// mostCompared bounds the bytes of a text that are compared. A longer text is cut,
// and a checksum takes the place of its end.
const mostCompared = 1024

// differentError is what all workers return if one has another text.
type differentError struct{ text string }

func (e differentError) Error() string { return e.text }

// Hint says what to do.
func (differentError) Hint() string { return "every host needs the same files at the same path" }

// Compare compares what every worker says of its data with what the chief says, in
// texts without zero bytes. If they differ, all workers return an error that names
// the first worker with another text, so that none waits for another.
func (g *Group) Compare(ctx context.Context, mine string) error {
	if len(mine) > mostCompared {
		mine = fmt.Sprintf("%s ... checksum %08x", mine[:mostCompared-32], crc32.ChecksumIEEE([]byte(mine)))
	}
	said := make([]int64, mostCompared) // a byte each, and zeros at the end
	for i := range len(mine) {
		said[i] = int64(mine[i])
	}
	if err := g.Broadcast(ctx, said, 0); err != nil {
		return err
	}
	var chiefs []byte
	for _, b := range said {
		chiefs = append(chiefs, byte(b))
	}
	chiefs = bytes.TrimRight(chiefs, "\x00")
	differs := make([]int64, len(g.config.Addrs))
	if string(chiefs) != mine {
		differs[g.config.Rank] = 1
	}
	if err := g.AllReduce(ctx, differs); err != nil {
		return err
	}
	other := slices.Index(differs, 1)
	if other < 0 {
		return nil
	}
	text := fmt.Sprintf("%s reads other data than the chief", task(other))
	if other == g.config.Rank {
		text += fmt.Sprintf(": %s; the chief reads: %s", mine, chiefs)
	}
	return differentError{text}
}
