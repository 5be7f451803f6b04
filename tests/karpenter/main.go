// Karpenter's scheduler as a filter: catalogues and batches of pods come in as lines of JSON, its node claims go out.
//
// The first line holds instance types by catalogue. Every further line is one batch of pending pods with NodePools and
// the pods of DaemonSets, on the types of a catalogue or on its own, and is answered by one line. What is measured is the processor time of what Karpenter does
// between listing pods and creating NodeClaims: the topology, the scheduler, Solve and the cut of the launch list.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"
)

// The AWS provider hands EC2 at most so many types of a claim.
const launchable = 60

type catalogues struct {
	Catalogues map[string][]instanceType `json:"catalogues"`
}

// Amounts are millicores of cpu, bytes of memory and counts of everything else.
type instanceType struct {
	Name      string              `json:"name"`
	Labels    map[string][]string `json:"labels"`
	Capacity  map[string]int64    `json:"capacity"`
	Overhead  map[string]int64    `json:"overhead"`
	Offerings []offering          `json:"offerings"`
}

type offering struct {
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	Price        float64 `json:"price"`
	Available    bool    `json:"available"`
}

type batch struct {
	Catalogue  string         `json:"catalogue"`
	Types      []instanceType `json:"types"`
	NodePools  []*v1.NodePool `json:"nodePools"`
	Pods       []*corev1.Pod  `json:"pods"`
	DaemonPods []*corev1.Pod  `json:"daemonPods"`
}

type answer struct {
	Claims     []claim           `json:"claims"`
	LeftOut    map[string]string `json:"leftOut"`
	CPUSeconds float64           `json:"cpuSeconds"`
}

type claim struct {
	NodePool      string                                    `json:"nodePool"`
	Requirements  []v1.NodeSelectorRequirementWithMinValues `json:"requirements"`
	InstanceTypes []string                                  `json:"instanceTypes"`
	Launch        launch                                    `json:"launch"`
	Pods          []string                                  `json:"pods"`
}

type launch struct {
	InstanceType string  `json:"instanceType"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	Price        float64 `json:"price"`
}

func main() {
	log.SetLogger(logr.Discard())
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), &options.Options{
		IgnoreDRARequests: true,
		MinValuesPolicy:   options.MinValuesPolicyStrict,
		PreferencePolicy:  options.PreferencePolicyRespect,
	})
	decoder, encoder := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	var known catalogues
	if err := decoder.Decode(&known); err != nil {
		return fmt.Errorf("reading catalogues, %w", err)
	}
	types := map[string][]*cloudprovider.InstanceType{}
	for name, listed := range known.Catalogues {
		types[name] = typed(listed)
	}
	for {
		var next batch
		if err := decoder.Decode(&next); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a batch, %w", err)
		}
		planned, err := next.plan(ctx, append(typed(next.Types), types[next.Catalogue]...))
		if err != nil {
			return err
		}
		if err := encoder.Encode(planned); err != nil {
			return err
		}
	}
}

func (b *batch) plan(ctx context.Context, types []*cloudprovider.InstanceType) (*answer, error) {
	ofPools := map[string][]*cloudprovider.InstanceType{}
	for _, pool := range b.NodePools {
		ofPools[pool.Name] = append([]*cloudprovider.InstanceType{}, types...)
	}
	nodepoolutils.OrderByWeight(b.NodePools)
	client, ticking := fakeclient.NewClientBuilder().Build(), &clock.RealClock{}
	// Only nodes and their ends ask the cluster for a provider, and there are none.
	cluster := state.NewCluster(ticking, client, nil)
	recorder := events.NewRecorder(&record.FakeRecorder{})
	// One is the default of Karpenter with one CPU requested.
	chosen := []scheduling.Options{scheduling.DisableReservedCapacityFallback, scheduling.NumConcurrentReconciles(1)}

	runtime.GC()
	started := processorTime()
	topology, err := scheduling.NewTopology(ctx, client, cluster, nil, b.NodePools, ofPools, b.Pods, chosen...)
	if err != nil {
		return nil, fmt.Errorf("tracking topology, %w", err)
	}
	scheduler := scheduling.NewScheduler(
		ctx, client, b.NodePools, cluster, nil, topology, ofPools, b.DaemonPods, recorder, ticking, nil, nil, chosen...)
	results, err := scheduler.Solve(ctx, b.Pods)
	if err != nil {
		return nil, fmt.Errorf("scheduling, %w", err)
	}
	results = results.TruncateInstanceTypes(ctx, launchable)
	took := processorTime() - started

	planned := answer{Claims: []claim{}, LeftOut: map[string]string{}, CPUSeconds: took.Seconds()}
	for pod, reason := range results.PodErrors {
		planned.LeftOut[pod.Name] = reason.Error()
	}
	for _, opened := range results.NewNodeClaims {
		planned.Claims = append(planned.Claims, written(opened))
	}
	return &planned, nil
}

func written(opened *scheduling.NodeClaim) claim {
	found := claim{NodePool: opened.NodePoolName, Requirements: opened.Requirements.NodeSelectorRequirements()}
	cheapest := math.Inf(1)
	for _, item := range opened.InstanceTypeOptions.OrderByPrice(opened.Requirements) {
		found.InstanceTypes = append(found.InstanceTypes, item.Name)
		for _, offered := range item.Offerings.Launchable().Compatible(opened.Requirements) {
			if offered.Price < cheapest {
				cheapest = offered.Price
				found.Launch = launch{item.Name, offered.Zone(), offered.CapacityType(), offered.Price}
			}
		}
	}
	for _, pod := range opened.Pods {
		found.Pods = append(found.Pods, pod.Name)
	}
	return found
}

func typed(listed []instanceType) []*cloudprovider.InstanceType {
	types := make([]*cloudprovider.InstanceType, 0, len(listed))
	for _, item := range listed {
		types = append(types, item.typed())
	}
	return types
}

func (i *instanceType) typed() *cloudprovider.InstanceType {
	// The provider registers its labels like this; a label that is not registered counts as undefined on every type.
	labels := requirements.NewRequirements()
	for key, values := range i.Labels {
		v1.WellKnownLabels.Insert(key)
		operator := corev1.NodeSelectorOpIn
		if len(values) == 0 {
			operator = corev1.NodeSelectorOpDoesNotExist
		}
		labels.Add(requirements.NewRequirement(key, operator, values...))
	}
	offerings := cloudprovider.Offerings{}
	for _, offered := range i.Offerings {
		offerings = append(offerings, &cloudprovider.Offering{
			Available: offered.Available,
			Price:     offered.Price,
			Requirements: requirements.NewLabelRequirements(map[string]string{
				corev1.LabelTopologyZone: offered.Zone,
				v1.CapacityTypeLabelKey:  offered.CapacityType,
			}),
		})
	}
	return &cloudprovider.InstanceType{
		Name:         i.Name,
		Requirements: labels,
		Capacity:     amounts(i.Capacity),
		Overhead:     &cloudprovider.InstanceTypeOverhead{KubeReserved: amounts(i.Overhead)},
		Offerings:    offerings,
	}
}

func amounts(canonical map[string]int64) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amount := range canonical {
		quantity := resource.NewQuantity(amount, resource.DecimalSI)
		if name == string(corev1.ResourceCPU) {
			quantity = resource.NewMilliQuantity(amount, resource.DecimalSI)
		}
		list[corev1.ResourceName(name)] = *quantity
	}
	return list
}

func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
