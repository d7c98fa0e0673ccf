package collective

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"slices"
)

// maxCompared is the maximum number of bytes of a text that Compare compares.
// The end of a longer text is replaced by a checksum.
const maxCompared = 1024

// differentError is the error of Compare on all workers if the text of one
// worker differs from the chief's.
type differentError struct{ text string }

func (e differentError) Error() string { return e.text }

// Hint returns advice for the user, which is printed below the error.
func (differentError) Hint() string { return "every host needs the same files at the same path" }

// Compare compares a description of each worker's data, its parameter mine,
// with that of the chief (worker 0). If one differs, all workers return an
// error that names the first worker whose description differs. So no worker
// waits for a worker that has failed. A description must not contain zero
// bytes.
func (g *Group) Compare(ctx context.Context, mine string) error {
	if len(mine) > maxCompared {
		mine = fmt.Sprintf("%s ... checksum %08x", mine[:maxCompared-32], crc32.ChecksumIEEE([]byte(mine)))
	}
	padded := make([]int64, maxCompared) // the text, one byte per element, padded with zeros at the end
	for i := range len(mine) {
		padded[i] = int64(mine[i])
	}
	if err := g.Broadcast(ctx, padded, 0); err != nil {
		return err
	}
	var chiefs []byte
	for _, b := range padded {
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
