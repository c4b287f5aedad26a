package reference

import (
	"bytes"

	"go.yaml.in/yaml/v3"
)

// object is an object of YAML whose keys keep their order.
type object []entry

// entry is a key of an object, and its value.
type entry struct {
	key   string
	value any
}

// with adds a key.
func (o object) with(key string, value any) object { return append(o, entry{key, value}) }

// MarshalYAML implements yaml.Marshaler.
func (o object) MarshalYAML() (any, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, e := range o {
		key, value := new(yaml.Node), new(yaml.Node)
		key.SetString(e.key)
		if err := value.Encode(e.value); err != nil {
			return nil, err
		}
		node.Content = append(node.Content, key, value)
	}
	return node, nil
}

// yamlText returns the text of an object.
func yamlText(o object) (string, error) {
	var b bytes.Buffer
	out := yaml.NewEncoder(&b)
	const indent = 2
	out.SetIndent(indent)
	if err := out.Encode(o); err != nil {
		return "", err
	}
	return b.String(), out.Close()
}
