package cluster

import "runtime"

const (
	// maxStacks bounds the stacks that a task sends, in bytes.
	maxStacks = 1 << 20
	// stacksPiece bounds a piece of them: JSON may write a byte as six, and maxControl holds.
	stacksPiece = 10 << 10
)

// SendStacks answers Stacks: it sends the stacks of all goroutines in pieces.
func (c *Control) SendStacks(request int) error {
	text := make([]byte, maxStacks)
	for text = text[:runtime.Stack(text, true)]; ; {
		piece := text[:min(len(text), stacksPiece)]
		text = text[len(piece):]
		err := c.Send(ControlMessage{Kind: Stacks, Request: request, Text: string(piece), More: len(text) > 0})
		if err != nil || len(text) == 0 {
			return err
		}
	}
}
