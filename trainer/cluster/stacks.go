package cluster

import "runtime"

const (
	// maximum number of bytes of goroutine stacks that a task sends
	maxStacks = 1 << 20
	// maximum number of bytes of stacks in one message. JSON may encode one
	// byte of the stacks as six, and an encoded message has at most maxControl
	// bytes.
	stacksPiece = 10 << 10
)

// SendStacks replies to an agent's Stacks message with the stacks of all
// goroutines, in several messages. request is the number of the agent's
// message.
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
