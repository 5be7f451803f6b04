// Decodes NodeConfigs strictly by the types of nodeadm, and their kubelet settings by those of the kubelet.
//
// Arguments: files of YAML, one NodeConfig each. Output: a line per file, empty when it is well formed.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	nodeadm "github.com/awslabs/amazon-eks-ami/nodeadm/api/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func main() {
	for _, path := range os.Args[1:] {
		text := ""
		if err := check(path); err != nil {
			text = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(text)
	}
}

func check(path string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var config nodeadm.NodeConfig
	if err := yaml.UnmarshalStrict(document, &config); err != nil {
		return err
	}
	if found := config.GroupVersionKind(); found != nodeadm.GroupVersion.WithKind("NodeConfig") {
		return fmt.Errorf("it is a %s", found)
	}
	switch config.Spec.Instance.LocalStorage.Strategy {
	case "", nodeadm.LocalStorageRAID0, nodeadm.LocalStorageMount:
	default:
		return fmt.Errorf("local storage strategy %s", config.Spec.Instance.LocalStorage.Strategy)
	}
	settings, err := json.Marshal(config.Spec.Kubelet.Config)
	if err != nil {
		return err
	}
	var known kubelet.KubeletConfiguration
	return yaml.UnmarshalStrict(settings, &known)
}
