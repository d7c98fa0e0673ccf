package summary

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// Node is a vertex of the graph that TensorBoard draws.
type Node struct {
	Name   string   // unique in the graph; TensorBoard groups nodes by the parts of the name between slashes
	Op     string   // name of the operation that computes the node
	Inputs []string // names of the nodes that this node computes from, in order
	Shape  []int
	Dtype  string // float32, float64, int or int64; any other type is not written to the file
}

// MostNodes is the largest number of nodes that Graph accepts. TensorBoard
// takes too long to draw larger graphs.
const MostNodes = 20_000

// The keys of the protocol buffer fields that encode a graph. Field 4 of the
// message Event holds an encoded GraphDef. Graph writes these fields, which
// TensorFlow defines in core/framework (graph.proto, node_def.proto,
// attr_value.proto, tensor_shape.proto, versions.proto):
//
//	GraphDef:   1 repeated NodeDef, 4 VersionDef
//	NodeDef:    1 string name, 2 string op, 3 repeated string input, 5 map of attributes
//	map entry:  1 string key, 2 AttrValue
//	AttrValue:  1 ListValue, 6 enum type
//	ListValue:  7 repeated TensorShapeProto
//	TensorShapeProto: 2 repeated Dim, of 1 int64 size
//	VersionDef: 1 int32 producer
const (
	eventGraph    = 4<<3 | 2
	graphNode     = 1<<3 | 2
	graphVersions = 4<<3 | 2
	nodeName      = 1<<3 | 2
	nodeOp        = 2<<3 | 2
	nodeInput     = 3<<3 | 2
	nodeAttribute = 5<<3 | 2
	entryKey      = 1<<3 | 2
	entryValue    = 2<<3 | 2
	attributeList = 1<<3 | 2
	attributeType = 6 << 3
	listShape     = 7<<3 | 2
	shapeDim      = 2<<3 | 2
	dimSize       = 1 << 3
	producer      = 1 << 3
)

// types maps the name of an element type to its number in TensorFlow's enum
// DataType.
var types = map[string]uint64{"float32": 1, "float64": 2, "int": 9, "int64": 9}

// graphVersion is the version of TensorFlow's GraphDef format in which Graph
// writes nodes.
const graphVersion = 22

// Graph writes the computation graph of the model to the event file. It
// refuses graphs of more than MostNodes nodes.
func (w *Writer) Graph(nodes []Node) error {
	if len(nodes) > MostNodes {
		return fmt.Errorf("summary: the graph has %d nodes, at most %d are allowed", len(nodes), MostNodes)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.writable("the graph"); err != nil {
		return err
	}
	w.events.add(appendRecord(nil, graphEvent(w.now(), nodes)))
	return w.flush()
}

func graphEvent(at time.Time, nodes []Node) []byte {
	var graph []byte
	for _, n := range nodes {
		graph = appendBytes(graph, graphNode, n.encode())
	}
	graph = appendBytes(graph, graphVersions, binary.AppendUvarint([]byte{producer}, graphVersion))
	return appendBytes(appendTime(nil, at), eventGraph, graph)
}

func (n Node) encode() []byte {
	b := appendBytes(nil, nodeName, utf8Of(n.Name))
	b = appendBytes(b, nodeOp, utf8Of(n.Op))
	for _, input := range n.Inputs {
		b = appendBytes(b, nodeInput, utf8Of(input))
	}
	var shape []byte
	for _, size := range n.Shape {
		shape = appendBytes(shape, shapeDim, binary.AppendUvarint([]byte{dimSize}, uint64(size)))
	}
	b = appendAttribute(b, "_output_shapes", appendBytes(nil, attributeList, appendBytes(nil, listShape, shape)))
	if number := types[n.Dtype]; number > 0 {
		b = appendAttribute(b, "dtype", binary.AppendUvarint([]byte{attributeType}, number))
	}
	return b
}

func appendAttribute(b []byte, key string, value []byte) []byte {
	return appendBytes(b, nodeAttribute, appendBytes(appendBytes(nil, entryKey, []byte(key)), entryValue, value))
}

// utf8Of returns s as valid UTF-8, which protocol buffers require.
func utf8Of(s string) []byte { return []byte(strings.ToValidUTF8(s, "\ufffd")) }
